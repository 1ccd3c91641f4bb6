#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "sidereal/base/event_log.h"
#include "sidereal/base/status.h"
#include "sidereal/membership/voter.h"
#include "sidereal/sys/clock.h"
#include "sidereal/sys/disk.h"
#include "sidereal/sys/posix/file_lock.h"

/// Tasks of the job "voter" decide which start of a parameter server counts.
namespace sidereal::session::v1 {
class AskVoteReply;
class AskVoteRequest;
}  // namespace sidereal::session::v1

namespace sidereal::service {

/// The job whose tasks are the voters of a cluster.
inline constexpr const char* kVoterJob = "voter";

void to_proto(const membership::Ask& ask, session::v1::AskVoteRequest* out);
membership::Ask from_proto(const session::v1::AskVoteRequest& given);
void to_proto(const membership::Vote& vote, session::v1::AskVoteReply* out);
membership::Vote from_proto(const session::v1::AskVoteReply& given);

struct VotingOptions {
  int64_t lease_ns = 0;  ///< Of those that ask; votes are kept twice as long.
  /// Where what was decided outlives the process; "": it does not, and a start that was deposed may
  /// count again when a majority of voters was started again meanwhile.
  std::string file;
  base::EventSource source = {};
};

/// The vote of a task: a membership::Voter whose memory is a file. Says in the event log when one
/// that had its vote is silent.
/// Thread: any.
class Voting {
 public:
  /// Errors: kDataLoss for a file that is none of these, or damaged; kFailedPrecondition for one
  /// that another process has; those of sys::Disk.
  static Result<std::unique_ptr<Voting>> create(VotingOptions options);
  ~Voting();
  Voting(const Voting&) = delete;
  Voting& operator=(const Voting&) = delete;

  /// Waits for the disk when something was decided. Errors: those of membership::Voter, and of
  /// sys::Disk: then nobody has the vote, as it might be forgotten.
  Result<membership::Vote> vote(const membership::Ask& ask);

 private:
  explicit Voting(VotingOptions options);
  Status read();
  Status write(const std::vector<membership::Voter::Record>& records);
  void run();

  const VotingOptions options_;
  const std::unique_ptr<sys::Clock> clock_;
  const std::shared_ptr<sys::Disk> disk_;
  std::unique_ptr<sys::posix::FileLock> lock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<membership::Voter> voter_;
  bool must_write_ = false;  // What was decided last is not on the disk.
  uint64_t writes_ = 0;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace sidereal::service
