#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "sidereal/service/job_commands.h"
#include "sidereal/service/session.grpc.pb.h"

/// For the .cc files of service.
namespace sidereal::service {

/// The commands that the holder of a lease hears of, by a HearCommands stream on `stub`. While
/// `is_held` says that the lease is, one that breaks is opened anew.
std::unique_ptr<JobCommands> hear_commands(session::v1::Master::Stub* stub, uint64_t lease,
                                           std::function<bool()> is_held);

}  // namespace sidereal::service
