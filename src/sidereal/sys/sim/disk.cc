#include "sidereal/sys/sim/disk.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace sidereal::sys::sim {

namespace {

/// What a disk writes at once.
constexpr uint64_t kSector = 4096;

Status stopped() { return base::unavailable("the simulated machine has stopped"); }

}  // namespace

class SimFile final : public File {
 public:
  SimFile(SimDisk* disk, std::string path, std::shared_ptr<SimDisk::Inode> inode)
      : disk_(*disk), path_(std::move(path)), inode_(std::move(inode)) {}

  Status write(uint64_t offset, std::span<const std::byte> bytes) override {
    const std::lock_guard lock(disk_.mutex_);
    SR_RETURN_IF_ERROR(disk_.begin("write", path_));
    const uint64_t end = offset + bytes.size();
    const uint64_t grows = end > inode_->now.size() ? end - inode_->now.size() : 0;
    if (grows > 0 && disk_.bytes_used() + grows > disk_.capacity_) {
      return base::resource_exhausted("cannot write to {}: No space left on device", path_);
    }
    SimDisk::Write write{offset, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
    SimDisk::apply(write, &inode_->now);
    inode_->unsynced.push_back(std::move(write));
    return {};
  }

  Status read(uint64_t offset, std::span<std::byte> into) override {
    const std::lock_guard lock(disk_.mutex_);
    if (disk_.operations_ > disk_.stops_after_) return stopped();
    if (disk_.fault_) SR_RETURN_IF_ERROR(disk_.fault_("read", path_));
    const std::string& now = inode_->now;
    if (offset > now.size() || into.size() > now.size() - offset) {
      return base::out_of_range("{} ends at byte {}", path_, now.size());
    }
    std::memcpy(into.data(), now.data() + offset, into.size());
    return {};
  }

  Result<uint64_t> size() override {
    const std::lock_guard lock(disk_.mutex_);
    return inode_->now.size();
  }

  Status sync() override {
    const std::lock_guard lock(disk_.mutex_);
    SR_RETURN_IF_ERROR(disk_.begin("sync", path_));
    inode_->on_disk = inode_->now;
    inode_->unsynced.clear();
    return {};
  }

 private:
  SimDisk& disk_;
  const std::string path_;
  const std::shared_ptr<SimDisk::Inode> inode_;
};

void SimDisk::apply(const NameChange& change, Names* names) {
  for (const auto& [path, inode] : change.sets) {
    if (inode == nullptr) {
      names->erase(path);
    } else {
      (*names)[path] = inode;
    }
  }
}

void SimDisk::apply(const Write& write, std::string* bytes) {
  const uint64_t end = write.offset + write.bytes.size();
  if (end > bytes->size()) bytes->resize(end);
  std::memcpy(bytes->data() + write.offset, write.bytes.data(), write.bytes.size());
}

/// Counts an operation. An error: it does not happen.
Status SimDisk::begin(std::string_view operation, const std::string& path) {
  if (operations_ > stops_after_) return stopped();
  if (operations_++ == stops_after_) {
    // The last one may have begun: what it did is as lost as what was not synced.
    ++operations_;
    return stopped();
  }
  if (fault_) return fault_(operation, path);
  return {};
}

void SimDisk::change_names(NameChange change) {
  apply(change, &names_);
  unsynced_names_.push_back(std::move(change));
}

uint64_t SimDisk::bytes_used() const {
  uint64_t out = 0;
  for (const auto& [path, inode] : names_) out += inode->now.size();
  return out;
}

Result<std::unique_ptr<File>> SimDisk::create(const std::string& path) {
  const std::lock_guard lock(mutex_);
  SR_RETURN_IF_ERROR(begin("create", path));
  if (names_.contains(path)) return base::already_exists("cannot create {}: File exists", path);
  auto inode = std::make_shared<Inode>();
  change_names({directory_of(path), {{path, inode}}});
  return std::make_unique<SimFile>(this, path, std::move(inode));
}

Result<std::unique_ptr<File>> SimDisk::open(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (operations_ > stops_after_) return stopped();
  const auto found = names_.find(path);
  if (found == names_.end()) {
    return base::not_found("cannot open {}: No such file or directory", path);
  }
  return std::make_unique<SimFile>(this, path, found->second);
}

Status SimDisk::rename(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  SR_RETURN_IF_ERROR(begin("rename", from));
  const auto found = names_.find(from);
  if (found == names_.end()) {
    return base::not_found("cannot rename to {}: {}: No such file or directory", to, from);
  }
  change_names({directory_of(to), {{from, nullptr}, {to, found->second}}});
  return {};
}

Status SimDisk::remove(const std::string& path) {
  const std::lock_guard lock(mutex_);
  SR_RETURN_IF_ERROR(begin("remove", path));
  if (!names_.contains(path)) {
    return base::not_found("cannot remove {}: No such file or directory", path);
  }
  change_names({directory_of(path), {{path, nullptr}}});
  return {};
}

Status SimDisk::sync_directory(const std::string& path) {
  const std::lock_guard lock(mutex_);
  SR_RETURN_IF_ERROR(begin("sync", path));
  std::erase_if(unsynced_names_, [&](const NameChange& change) {
    if (change.directory != path) return false;
    apply(change, &names_on_disk_);
    return true;
  });
  return {};
}

Status SimDisk::make_directories(const std::string& /*path*/) { return {}; }

Result<std::vector<std::string>> SimDisk::list(const std::string& directory) {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> out;
  for (const auto& [path, inode] : names_) {
    if (directory_of(path) == directory) out.push_back(file_name_of(path));
  }
  return out;
}

uint64_t SimDisk::operations() const {
  const std::lock_guard lock(mutex_);
  return operations_;
}

void SimDisk::stop_after(uint64_t operation) {
  const std::lock_guard lock(mutex_);
  stops_after_ = operation;
}

std::shared_ptr<SimDisk> SimDisk::restart() {
  const std::lock_guard lock(mutex_);
  auto out = std::make_shared<SimDisk>(rng_.next());
  // Of each directory some of the last changes of names are lost.
  Names names = names_on_disk_;
  std::map<std::string, bool> goes_on;
  for (const NameChange& change : unsynced_names_) {
    bool& applies = goes_on.try_emplace(change.directory, true).first->second;
    applies = applies && rng_.chance(0.7);
    if (applies) apply(change, &names);
  }
  std::map<const Inode*, std::shared_ptr<Inode>> kept;
  for (const auto& [path, inode] : names) {
    std::shared_ptr<Inode>& copy = kept[inode.get()];
    if (copy == nullptr) {
      copy = std::make_shared<Inode>();
      copy->on_disk = inode->on_disk;
      for (const Write& write : inode->unsynced) {
        for (uint64_t at = 0; at < write.bytes.size(); at += kSector) {
          if (rng_.chance(0.5))
            apply({write.offset + at, write.bytes.substr(at, kSector)}, &copy->on_disk);
        }
      }
      copy->now = copy->on_disk;
    }
    out->names_[path] = copy;
  }
  out->names_on_disk_ = out->names_;
  return out;
}

void SimDisk::set_capacity(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  capacity_ = bytes;
}

void SimDisk::set_fault(Fault fault) {
  const std::lock_guard lock(mutex_);
  fault_ = std::move(fault);
}

bool SimDisk::damage(const std::string& path, uint64_t offset, uint8_t mask) {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(path);
  if (found == names_.end() || offset >= found->second->now.size()) return false;
  char& byte = found->second->now[offset];
  byte = static_cast<char>(static_cast<uint8_t>(byte) ^ mask);
  return true;
}

Result<std::string> SimDisk::contents(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(path);
  if (found == names_.end()) return base::not_found("no {}", path);
  return found->second->now;
}

}  // namespace sidereal::sys::sim
