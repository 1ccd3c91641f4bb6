#pragma once

#include <memory>

#include "sidereal/sys/clock.h"
#include "sidereal/sys/network.h"

/// The real world: Linux sockets, epoll, the monotonic clock. The only place that calls them.
namespace sidereal::sys::posix {

/// CLOCK_MONOTONIC. Thread: any.
std::unique_ptr<Clock> create_clock();

/// The kernel's random bytes. Thread: any.
std::unique_ptr<Random> create_random();

/// TCP over IPv4 and IPv6 with epoll. Every socket is non-blocking, without Nagle's delay, and
/// asks for the "cubic" or "reno" congestion control: "bbr", the default of some hosts, is 2-4
/// times slower on pipelined traffic between processes of one machine. Thread: any.
std::unique_ptr<Network> create_network();

}  // namespace sidereal::sys::posix
