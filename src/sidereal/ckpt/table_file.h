#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "sidereal/base/status.h"

/// Files of sorted keys and values in LevelDB's format (its table_format.md), which TensorFlow's
/// tensor bundles have as their index. LevelDB's own reader takes memory for lengths before it has
/// looked whether they can be.
namespace sidereal::ckpt {

/// Makes such a file. Value type. Thread: core-local.
class TableBuilder {
 public:
  /// Keys come in the order of their bytes, each once (checked).
  void add(std::string_view key, std::string_view value);
  /// The bytes of the file.
  std::string finish() &&;

 private:
  /// Entries, of which each has only what its key differs in from the one before.
  struct Block {
    std::string bytes;
    std::string restarts;  ///< Where entries with whole keys begin, as 4 bytes each.
    uint32_t entries = 0;
    std::string last_key;

    void add(std::string_view key, std::string_view value, uint32_t whole_every);
  };
  /// Appends the block and empties it; returns where it is, as an index has it.
  std::string write(Block* block);
  void end_data();

  std::string out_;
  Block data_;
  Block index_;
};

/// Calls `use` for each key and value of such a file, in order, until it returns an error. Bytes
/// from anyone: kDataLoss for what is damaged, kUnimplemented for compressed blocks.
Status read_table(std::string_view file,
                  absl::FunctionRef<Status(std::string_view key, std::string_view value)> use);

/// True when the bytes end as such a file does.
bool is_table(std::string_view file);
/// Bytes at the end of a file that is_table() needs.
inline constexpr size_t kTableFooterBytes = 48;

// Numbers of 7 bits a byte, the least first.
void put_varint(uint64_t value, std::string* out);
/// Takes one off the front of `bytes`. False when there is none.
bool take_varint(std::string_view* bytes, uint64_t* value);

}  // namespace sidereal::ckpt
