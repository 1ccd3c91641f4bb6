#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/sys/disk.h"
#include "sidereal/sys/posix/file_lock.h"

namespace sidereal::train {

/// A directory of checkpoints "model.ckpt-STEP" and the file `checkpoint`, which says which there
/// are. One process at a time writes there. Internal to train.
/// Thread: core-local.
/// Source: tf.train.CheckpointManager; the file is its CheckpointState as text.
class CheckpointDirectory {
 public:
  /// Makes the directory if need be, and has it to itself. `keep` checkpoints stay, and what they
  /// stand on; 0: all.
  /// kFailedPrecondition when another process writes there, naming it.
  static Result<std::unique_ptr<CheckpointDirectory>> open(std::shared_ptr<sys::Disk> disk,
                                                           const std::string& path, int64_t keep);

  /// Prefixes of checkpoints, the newest first.
  [[nodiscard]] std::vector<std::string> newest_first() const;
  /// What is newer than that checkpoint, "" for all, is no part of this training: it is not listed
  /// any more. Its files stay.
  void forget_after(const std::string& prefix);

  /// Before checkpoint `step` is written: its prefix. What is there of one of this name goes first
  /// if it is not listed, and so does what stands on that.
  Result<std::string> begin(int64_t step);
  /// How many data files there are of a checkpoint.
  [[nodiscard]] int64_t data_files(const std::string& prefix) const;
  /// It is there: lists it, and removes the oldest.
  Status add(const std::string& prefix);

 private:
  CheckpointDirectory(std::shared_ptr<sys::Disk> disk, std::string path, int64_t keep)
      : disk_(std::move(disk)), path_(std::move(path)), keep_(keep) {}
  Status read_state();
  Status settle_unfinished();
  Status write_state();
  [[nodiscard]] std::vector<std::string> bases_of(const std::string& name) const;
  Status remove_what_stands_on(const std::string& name);
  Status remove(const std::string& name);
  Status remove_data(const std::string& name);

  const std::shared_ptr<sys::Disk> disk_;
  const std::string path_;
  const int64_t keep_;
  std::unique_ptr<sys::posix::FileLock> lock_;
  std::vector<std::string> names_;  // Oldest first; in the directory.
};

/// The paths that a file `checkpoint` lists, oldest first, the one that it calls the newest last.
std::vector<std::string> checkpoints_listed(const std::string& text);

}  // namespace sidereal::train
