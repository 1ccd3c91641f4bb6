#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "sidereal/base/status.h"
#include "sidereal/resources/change_entry.h"

/// Reading the change log of a lane of a task: docs/design/0005-replication.md.
namespace sidereal::task {

/// What a reader asks for. Value type.
struct ChangesWanted {
  /// Whose variables: "": those that sessions share which say nothing else; kOnlyGroup; or the name
  /// of a group of sessions.
  std::string state_group = {};
  int lane = 0;
  /// Up to where the reader has everything; nothing, or what the log does not have any more: it
  /// gets a snapshot first.
  std::optional<resources::LogPosition> after = {};
  int64_t cut_ns = 20'000'000;            ///< From one cut to the next one, at the latest.
  size_t window_bytes = size_t{4} << 20;  ///< That may be under way.
  /// Of a snapshot; entries have all that has changed.
  resources::WantedNames names = {};
  /// A standby, which steps that have changed variables wait for before they are answered.
  bool is_synchronous = false;
};

/// The one group of sessions that the task has.
inline constexpr const char* kOnlyGroup = "*";

/// Gets what is read. Thread: the lane; must not block.
class ChangesSink {
 public:
  virtual ~ChangesSink() = default;
  /// Once, first: all lanes note what changes from here on, in this opening of their logs.
  virtual void begun(uint64_t incarnation) = 0;
  /// An entry, or a piece of a snapshot; the log ends at cut `end` now.
  virtual void give(const std::shared_ptr<const std::string>& bytes, uint64_t end) = 0;
  /// Nothing is new; the log ends at cut `end`, which was made after the reader had asked for
  /// `mark`, if that is not 0.
  virtual void at(uint64_t end, uint64_t mark) = 0;
  /// The reader is synchronous and has caught up: it has all that was answered, which is in cut
  /// `end`, and until it ends what changes variables on the lane is answered when it has that.
  virtual void in_sync(uint64_t end) = 0;
  /// The last call. kOutOfRange: the reader was too slow, and comes back with its position;
  /// kDeadlineExceeded: it has said nothing for kReaderSilenceNs, or, in sync, has not acknowledged
  /// a cut for TaskOptions::standby_timeout_ns; kNotFound: the group has ended.
  virtual void ended(const Status& status) = 0;
};

/// A reader that says nothing for so long has gone.
inline constexpr int64_t kReaderSilenceNs = 30'000'000'000;

/// What the reader says. Thread: any.
class ChangesReader {
 public:
  virtual ~ChangesReader() = default;
  /// It has taken so many bytes by now, of all that it was given, and has applied everything up to
  /// cut `applied` of the opening of the log that it reads.
  virtual void took(uint64_t bytes, uint64_t applied) = 0;
  /// It wants to be told at() with this number after the next cut. Of several, the last one counts.
  virtual void ask(uint64_t mark) = 0;
  /// It wants no more: the end comes, with kCancelled.
  virtual void cancel() = 0;
};

}  // namespace sidereal::task
