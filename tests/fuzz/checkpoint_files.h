#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "sidereal/base/check.h"
#include "sidereal/ckpt/convert.h"
#include "sidereal/ckpt/formats.h"

/// What targets that read files of tensors share.
namespace sidereal::fuzz {

/// A folder for one input, in memory where there is such a place.
class InputFolder {
 public:
  InputFolder() {
    std::error_code error;
    const bool has_memory = std::filesystem::is_directory("/dev/shm", error);
    path_ = (has_memory ? "/dev/shm" : std::filesystem::temp_directory_path().string()) +
            "/sidereal_fuzz_XXXXXX";
    SR_CHECK(mkdtemp(path_.data()) != nullptr);
  }
  ~InputFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  InputFolder(const InputFolder&) = delete;
  InputFolder& operator=(const InputFolder&) = delete;

  [[nodiscard]] std::string path(const std::string& name) const { return path_ + "/" + name; }
  void write(const std::string& name, std::string_view bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
  }

 private:
  std::string path_;
};

/// What can be read is read, in full and in part; when that is all, it is written in its own
/// format, and is the same then.
inline void read_all(const InputFolder& folder, const ckpt::Found& found) {
  const auto reader = ckpt::open_tensors(found);
  if (!reader.ok()) return;
  bool is_whole = true;
  for (const ckpt::StoredTensor& stored : (*reader)->list()) {
    const auto whole = (*reader)->read(stored.name);
    const bool is_verified = (*reader)->verify(stored.name).ok();
    SR_CHECK(!whole.ok() || is_verified, "{} can be read and is damaged", stored.name);
    is_whole = is_whole && whole.ok();
    ckpt::Slice part = ckpt::whole_slice(stored.shape);
    for (ckpt::Range& range : part) {
      const int64_t start = range.count / 2;
      range = {.start = start, .count = (range.count - start + 1) / 2, .step = 2};
    }
    const auto some = (*reader)->read(stored.name, part);
    SR_CHECK(!some.ok() || some->shape() == ckpt::shape_of(part));
    SR_CHECK(some.ok() || !whole.ok(), "{}", base::message_of(some.status()));
  }
  if (!is_whole) return;
  const std::string again = folder.path("again");
  const auto written = ckpt::convert(reader->get(), found.format, again);
  if (!written.ok() || !written->left_out.empty()) return;
  const auto back = ckpt::open_tensors({again, found.format});
  SR_CHECK(back.ok(), "{}", base::message_of(back.status()));
  const auto differences = ckpt::compare(reader->get(), back->get(), 0);
  SR_CHECK(differences.ok(), "{}", base::message_of(differences.status()));
  SR_CHECK(differences->empty(), "{}: {}", differences->front().name, differences->front().how);
}

}  // namespace sidereal::fuzz
