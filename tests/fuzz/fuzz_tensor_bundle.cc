#include <algorithm>
#include <map>
#include <string>

#include "sidereal/ckpt/table_file.h"
#include "tests/fuzz/checkpoint_files.h"
#include "tests/fuzz/fuzz.h"

namespace {

/// Takes that many bytes off the front, or all that there are.
std::string_view take(std::string_view* bytes, size_t count) {
  const std::string_view out = bytes->substr(0, count);
  bytes->remove_prefix(out.size());
  return out;
}

/// The length that two bytes say.
size_t take_length(std::string_view* bytes) {
  const std::string_view two = take(bytes, 2);
  size_t out = 0;
  for (const char c : two) out = out << 8 | static_cast<uint8_t>(c);
  return out;
}

/// A table whose keys and values are those of the input, so that its own checksums are right: a
/// number of entries, then each with the lengths of both. What is left is data.
std::string table_of(std::string_view* input) {
  std::map<std::string, std::string> entries;
  for (size_t count = take_length(input) % 64; count > 0 && !input->empty(); --count) {
    const size_t key = take_length(input);
    const size_t value = take_length(input);
    const std::string_view name = take(input, key);
    entries.emplace(name, take(input, value));
  }
  sidereal::ckpt::TableBuilder table;
  for (const auto& [key, value] : entries) table.add(key, value);
  return std::move(table).finish();
}

}  // namespace

/// The input is an index file; or the entries of one, and the data file behind them.
SR_FUZZ_TARGET(tensor_bundle) {
  const sidereal::fuzz::InputFolder folder;
  const sidereal::ckpt::Found found{folder.path("x"), sidereal::ckpt::Format::kTensorFlow};
  folder.write("x.index", input);
  sidereal::fuzz::read_all(folder, found);
  folder.write("x.index", table_of(&input));
  folder.write("x.data-00000-of-00001", input);
  sidereal::fuzz::read_all(folder, found);
}
