// The precompiled header of tests: the shared one, and GoogleTest.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pch.h"
