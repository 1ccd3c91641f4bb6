#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ckpt/slice.h"
#include "sidereal/tensor/tensor.h"

/// What a checkpoint says of itself: docs/formats/checkpoint.md.
namespace sidereal::ckpt {

/// Bytes that one checksum is of.
inline constexpr uint64_t kBlockBytes = uint64_t{1} << 20;

/// Bytes of a data file that follow one another. Value type.
struct Extent {
  uint32_t file = 0;  ///< Number in Index::files.
  uint64_t offset = 0;
  uint64_t bytes = 0;
  /// XXH3 of each kBlockBytes, the last one maybe shorter.
  std::vector<uint64_t> checksums = {};

  friend bool operator==(const Extent&, const Extent&) = default;
};

/// A tensor, or a slice of one, or rows of that which have changed since the base. Value type.
struct Entry {
  std::string name;
  tensor::DType dtype = tensor::DType::kInvalid;
  tensor::Shape shape = {};  ///< Of the whole tensor.
  Slice slice = {};          ///< Of it, what this is.
  bool is_increment = false;
  /// Of an increment: which rows of the slice, int64, in order. Else empty.
  Extent rows = {};
  /// The elements, row-major. Of strings: the length of each as uint64, then the bytes of all.
  Extent data = {};
  /// Which changes of closures are in it: resources::ChangesMade::encode().
  std::string changes_made = {};
  /// How much is in it of what was pushed to a variable of a task since that was started. Value
  /// type.
  struct Pushed {
    uint64_t life = 0;  ///< The incarnation of the task; 0: nothing is said.
    int64_t pushes = 0;
    int64_t rows = 0;        ///< Of tables.
    std::string table = {};  ///< Whose part it is; "": it is no table.

    friend bool operator==(const Pushed&, const Pushed&) = default;
  };
  Pushed pushed = {};

  friend bool operator==(const Entry&, const Entry&) = default;
};

/// A data file. Value type.
struct DataFile {
  std::string name;  ///< In the directory of the index.
  uint64_t bytes = 0;

  friend bool operator==(const DataFile&, const DataFile&) = default;
};

/// All of a checkpoint but the data, or what one task has written of it. Value type.
struct Index {
  /// Name of the checkpoint, in the same directory, that increments stand on; empty: there are
  /// none.
  std::string base = {};
  /// Random, one of each task that wrote: what later increments count from.
  std::vector<uint64_t> cuts = {};
  std::vector<DataFile> files = {};
  std::vector<Entry> entries = {};  ///< In the order of names and slices.

  friend bool operator==(const Index&, const Index&) = default;
};

/// True when the bytes begin as those of an index file do; it takes few of them.
bool begins_as_index(std::string_view bytes);
/// The bytes of an index file.
std::string encode(const Index& index);
/// The reverse. kDataLoss, saying `what`, for bytes that are no index or an inconsistent one:
/// whatever they are, what comes back names places within its files only. kUnimplemented for a
/// newer format.
Result<Index> decode(std::string_view bytes, std::string_view what);

/// One index of what several tasks have written. kInvalidArgument unless they have
/// each tensor whole, and no element of it twice.
Result<Index> merge(std::span<const Index> parts, std::string base);

/// What readers of an index file stand on. kDataLoss unless the entries are in the order of names
/// and slices, and those of one name are of one dtype and shape.
Status check_order(const Index& index);

/// "PREFIX.index".
std::string index_path(const std::string& prefix);
/// Of data file `shard` of `shards`: "NAME.data-00000-of-00002.12345678", where NAME is what
/// follows the directory of the prefix.
std::string data_file_name(const std::string& prefix, int64_t shard, int64_t shards,
                           uint64_t unique);

/// "CUT,CUT": how a cut is told to those who ask for an increment later.
std::string cut_text(const std::vector<uint64_t>& cuts);
/// The reverse; empty for "". kInvalidArgument.
Result<std::vector<uint64_t>> parse_cut(std::string_view text);

}  // namespace sidereal::ckpt
