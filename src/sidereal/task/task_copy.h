#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/resources/replica.h"

/// What a follower makes of what the lanes of a task say: docs/design/0005-replication.md.
namespace sidereal::task {

/// A stream by which one lane is read, as who has it knows it.
class CopyStream {
 public:
  CopyStream() = default;
  virtual ~CopyStream() = default;
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;
};

/// What a lane says on a stream. Value type.
struct LaneSays {
  /// First, in each stream.
  struct Begun {
    int lanes = 1;             ///< Of the task.
    uint64_t incarnation = 0;  ///< Of this opening of the log;
    uint64_t life = 0;         ///< of the task.
  };
  std::optional<Begun> begun = {};
  std::string_view entry = {};  ///< Or a piece of a snapshot; "": nothing is new.
  uint64_t end = 0;             ///< The cut that the log ends at.
  uint64_t mark = 0;            ///< That was asked for before this cut was made; 0: none.
  bool is_in_sync = false;      ///< From here on pushes to the lane wait for this copy.
};

/// The copy of the variables of a task, and what is to be asked of which lane so that it becomes
/// and stays that: which streams are open, from where a lane is read, what is asked again, and up
/// to where all is here. It waits for nothing and sends nothing: who has it opens streams, and
/// tells of what comes on them. Times are nanoseconds of any clock.
/// Thread: one at a time, but for what Replica says of itself.
class TaskCopy {
 public:
  using Stream = std::shared_ptr<CopyStream>;
  using Streams = std::vector<Stream>;

  struct Options {
    std::string task;     ///< For messages: its name,
    std::string address;  ///< and where it is.
    size_t bytes_max = 0;
    resources::WantedNames names = {};
    bool is_synchronous = false;
  };
  explicit TaskCopy(Options options);

  /// Streams that have said nothing for too long, which are to be ended.
  [[nodiscard]] Streams silent(int64_t now);
  /// Lanes that a stream is to be opened for.
  [[nodiscard]] std::vector<int> due(int64_t now) const;
  /// A stream is being opened for a lane: up to where that has been taken; nothing: it is to send
  /// a snapshot.
  std::optional<resources::LogPosition> open(int lane, Stream stream, int64_t now);
  /// Streams that were opened take questions; the mark that they are to be asked for, or 0.
  uint64_t started();
  /// From here on all that the task has now is wanted: streams to ask for this number, the highest
  /// so far, after which is_here() says when it has come.
  Streams ask(uint64_t mark);
  [[nodiscard]] bool is_here(uint64_t mark) const;

  /// What became of what a lane has said. Value type.
  struct Taken {
    bool is_read = true;   ///< False: the stream is none of these any more, and is to end.
    uint64_t applied = 0;  ///< The cut of its log up to which everything is here; 0: unknown.
    Streams ending = {};   ///< Others that are to be ended.
  };
  Taken take(int lane, const CopyStream* stream, const LaneSays& said, int64_t now);
  /// The task cannot go on with a stream, and says why. False as Taken::is_read.
  bool failed(int lane, const CopyStream* stream, const Status& why, int64_t now);
  /// Once for each that was opened.
  void ended(int lane, const CopyStream* stream, const Status& why, int64_t now);

  /// All lanes are here, of one start of the task.
  [[nodiscard]] bool is_whole() const;
  /// Pushes to all lanes wait for it.
  [[nodiscard]] bool is_in_sync() const;
  /// kUnavailable with what broke; ok: it is whole.
  [[nodiscard]] Status why_not_whole() const;
  /// What broke, or broke last and is not forgotten.
  [[nodiscard]] const Status& status() const { return status_; }
  /// What broke is forgotten, if something has come since.
  void forget_what_is_mended() {
    if (is_mended_) status_ = {};
  }
  [[nodiscard]] resources::Replica& replica() { return replica_; }
  [[nodiscard]] const resources::Replica& replica() const { return replica_; }
  [[nodiscard]] uint64_t cuts_behind() const;
  /// The longest time since a lane was known to be what is here.
  [[nodiscard]] int64_t behind_ns(int64_t now) const;
  /// Those that are open.
  [[nodiscard]] Streams streams() const;
  [[nodiscard]] size_t open_count() const { return open_; }

  /// The copy stays as it is until let_go(), for the start `life` of the task, which takes it: the
  /// starts before are not followed any more. Streams that are to be ended.
  Streams hold(uint64_t life);
  void let_go() { --holders_; }
  /// The start that was given the copy of the start `life`; 0: none.
  [[nodiscard]] uint64_t heir_of(uint64_t life) const;

 private:
  struct Lane {
    Stream stream = nullptr;
    std::optional<int64_t> again = {};    ///< Not opened before.
    int64_t heard = 0;                    ///< When something last came.
    std::optional<int64_t> current = {};  ///< When it was last known to be what is here.
    uint64_t incarnation = 0;             ///< Of the log that is read;
    uint64_t end = 0;                     ///< the cut that it ends at.
    bool wants_all = false;   ///< Entries are no use: something here is not as the task has it.
    bool is_started = false;  ///< `stream` takes questions.
    bool is_in_sync = false;  ///< The task has said so on `stream`.
    uint64_t mark = 0;        ///< What was last asked, and answered:
    uint64_t mark_end = 0;    ///< it is here when this cut is.
    uint64_t marked = 0;      ///< What was asked, and is here.
  };

  [[nodiscard]] Lane* find(int lane, const CopyStream* stream);
  void begin(const CopyStream* stream, int lanes, Streams* ending);
  void take_entry(int lane, const LaneSays& said, Streams* ending);
  void broke(Status status) {
    status_ = std::move(status);
    is_mended_ = false;
  }

  const Options options_;
  resources::Replica replica_;
  std::vector<Lane> lanes_;  // As many as the task last said; of the first one it is asked.
  Status status_;            // What broke,
  bool is_mended_ = false;   // and whether something has come since.
  uint64_t wanted_mark_ = 0;
  size_t open_ = 0;        // Streams.
  int holders_ = 0;        // Nothing is followed while there are any.
  uint64_t life_ = 0;      // The start of the task that was followed last.
  uint64_t taken_by_ = 0;  // The start that it was held for last; 0: none.
  /// Starts that are followed no more, and those that the copy was given to. The latest ones.
  std::vector<std::pair<uint64_t, uint64_t>> deposed_;
};

}  // namespace sidereal::task
