#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/ckpt/data_file.h"
#include "sidereal/ckpt/index.h"
#include "sidereal/ckpt/stored_tensors.h"
#include "sidereal/sys/disk.h"

namespace sidereal::ckpt {

/// Reads the index of a checkpoint. kNotFound when there is none.
Result<Index> read_index(sys::Disk* disk, const std::string& prefix);
/// The prefixes of all that a checkpoint stands on, the nearest first, up to one that is whole or
/// cannot be read: that stands on nothing that it could be read with.
std::vector<std::string> bases_of(sys::Disk* disk, const std::string& prefix);
/// Puts an index in place, at once: from then on the checkpoint is there. What the checkpoint of
/// the same name was before goes.
Status write_index(sys::Disk* disk, const std::string& prefix, const Index& index, uint64_t unique);

/// Reads a checkpoint, with those that it stands on when it is an increment.
/// Thread: core-local.
class CheckpointReader final : public TensorReader {
 public:
  /// kNotFound, naming the file, when a part of it is not there; kDataLoss.
  static Result<std::unique_ptr<CheckpointReader>> open(std::shared_ptr<sys::Disk> disk,
                                                        const std::string& prefix);

  /// The checkpoint that this one stands on directly; "" for a full one.
  [[nodiscard]] const std::string& base() const { return levels_.back().index.base; }
  /// What to say for an increment that counts from this one: cut_text().
  [[nodiscard]] std::string cut() const { return cut_text(levels_.back().index.cuts); }
  [[nodiscard]] const Index& index() const { return levels_.back().index; }

  using TensorReader::read;
  /// Fills `out`, which has the elements of `part` and nobody else holds. As TensorReader::read().
  Status read_into(std::string_view name, const Slice& part, tensor::Tensor* out);
  /// Entry::changes_made of the newest entry of exactly this slice; "" when there is none.
  [[nodiscard]] std::string changes_made(std::string_view name, const Slice& part) const;
  /// Entry::pushed of the newest entry of exactly this slice; of life 0 when there is none.
  [[nodiscard]] Entry::Pushed pushed(std::string_view name, const Slice& part) const;

 protected:
  Result<tensor::Tensor> read_whole(const StoredTensor& stored) override;
  Result<tensor::Tensor> read_part(const StoredTensor& stored, const Slice& part) override;
  Status verify_stored(const StoredTensor& stored) override;

 private:
  /// A checkpoint of the chain.
  struct Level {
    std::string prefix;
    Index index;
    std::unique_ptr<DataReader> data;
  };
  explicit CheckpointReader(std::vector<Level> levels);

  Status read_stored(const StoredTensor& stored, const Slice& part, tensor::Tensor* out);
  Status add_entry(const Level& level, const Entry& entry, const Slice& part, tensor::Tensor* out,
                   int64_t* elements);
  Status add_increment(const Level& level, const Entry& entry, const Slice& part,
                       tensor::Tensor* out);
  Result<tensor::Tensor> read_strings(const Level& level, const Entry& entry);

  std::vector<Level> levels_;  // Oldest first; not empty.
};

}  // namespace sidereal::ckpt
