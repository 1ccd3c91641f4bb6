#include "sidereal/sys/posix/announcement.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <system_error>

namespace sidereal::sys::posix {

namespace {

namespace fs = std::filesystem;

bool is_number(const std::string& name) {
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_mine(const fs::path& path) {
  struct stat found {};
  return ::stat(path.c_str(), &found) == 0 && found.st_uid == ::geteuid();
}

}  // namespace

std::unique_ptr<Announcement> Announcement::create(const std::string& kind,
                                                   const std::string& text) {
  const int handle = ::memfd_create(kind.c_str(), MFD_CLOEXEC);
  if (handle < 0) return nullptr;
  std::unique_ptr<Announcement> out(new Announcement(handle));
  const auto written = ::write(handle, text.data(), text.size());
  return written == static_cast<ssize_t>(text.size()) ? std::move(out) : nullptr;
}

Announcement::~Announcement() { ::close(handle_); }

void Announcement::append(std::string_view line, size_t bytes_max) {
  text_ += line;
  size_t from = text_.size() - line.size();
  if (text_.size() > bytes_max) {
    // Half of it, so that this is rare.
    const size_t end = text_.find('\n', text_.size() - bytes_max / 2);
    text_.erase(0, end == std::string::npos ? text_.size() : end + 1);
    from = 0;
    if (::ftruncate(handle_, 0) != 0) return;
  }
  const std::string_view rest = std::string_view(text_).substr(from);
  // What there is no memory for is not announced.
  static_cast<void>(::pwrite(handle_, rest.data(), rest.size(), static_cast<off_t>(from)) == 0);
}

std::vector<std::string> announced(const std::string& kind) {
  // Processes come and go meanwhile: what cannot be read is not there any more.
  const std::string wanted = "/memfd:" + kind + " (deleted)";
  std::set<std::string> out;
  std::error_code gone;
  for (fs::directory_iterator process("/proc", gone), end; !gone && process != end;
       process.increment(gone)) {
    if (!is_number(process->path().filename()) || !is_mine(process->path())) continue;
    std::error_code hidden;
    for (fs::directory_iterator file(process->path() / "fd", hidden), last; !hidden && file != last;
         file.increment(hidden)) {
      std::error_code closed;
      if (fs::read_symlink(file->path(), closed) != wanted || closed) continue;
      std::ifstream content(file->path());
      std::string text{std::istreambuf_iterator<char>(content), {}};
      if (content && !text.empty()) out.insert(std::move(text));
    }
  }
  return {out.begin(), out.end()};
}

}  // namespace sidereal::sys::posix
