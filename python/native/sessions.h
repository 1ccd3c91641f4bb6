#pragma once

#include <nanobind/nanobind.h>

#include "sidereal/security/credentials.h"
#include "sidereal/service/session.h"

namespace sidereal::python {

/// True when Python has a signal for this thread, whose exception is raised then.
bool interrupted();

/// Of ({variable: device}, {task: task}).
ir::PlacementOverrides overrides_of(nanobind::handle given);

/// What a ConfigProto says, as sidereal.server.session_options() gives it.
service::SessionOptions options_of(nanobind::handle given,
                                   const security::SecurityOptions& security);

}  // namespace sidereal::python
