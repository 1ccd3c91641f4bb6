#pragma once

#include <memory>

#include "sidereal/sys/clock.h"
#include "sidereal/sys/disk.h"
#include "sidereal/sys/network.h"

/// The real world: Linux sockets, epoll, the monotonic clock. The only place that calls them.
namespace sidereal::sys::posix {

/// CLOCK_MONOTONIC. Thread: any.
std::unique_ptr<Clock> create_clock();

/// The kernel's random bytes. Thread: any.
std::unique_ptr<Random> create_random();

/// The file system. Large writes that begin and end at blocks go past the system's cache, where the
/// file system lets them: what a parameter server saves does not push out what the machine reads.
/// Thread: any.
std::shared_ptr<Disk> create_disk();

/// TCP over IPv4 and IPv6 with epoll. Every socket is non-blocking, without Nagle's delay, and
/// asks for the "cubic" or "reno" congestion control: "bbr", the default of some hosts, is 2-4
/// times slower on pipelined traffic between processes of one machine. Thread: any.
std::unique_ptr<Network> create_network();

}  // namespace sidereal::sys::posix
