#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/sys/disk.h"
#include "sidereal/sys/sim/rng.h"

namespace sidereal::sys::sim {

/// A disk in memory that loses what a disk may lose when the machine stops: writes that were not
/// synced, some of them or some blocks of one; names that were not, the last ones of a directory.
/// Every directory is there. What it does follows from its seed and the order of calls.
/// Lifecycle: calls; stop_after() says when the machine stops, from when on all fails; restart()
/// makes a disk of what a machine would find then.
/// Thread: any.
class SimDisk final : public Disk {
 public:
  explicit SimDisk(uint64_t seed) : rng_(seed) {}

  Result<std::unique_ptr<File>> create(const std::string& path) override;
  Result<std::unique_ptr<File>> open(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Status sync_directory(const std::string& path) override;
  Status make_directories(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& directory) override;

  /// Changes of files and names, and syncs, that there were.
  [[nodiscard]] uint64_t operations() const;
  /// The machine stops in the middle of operation number `operation`, counted from 0.
  void stop_after(uint64_t operation);
  /// What is left when the machine starts again; files that are open on this one stay here.
  std::shared_ptr<SimDisk> restart();

  /// Bytes that fit on it.
  void set_capacity(uint64_t bytes);
  /// Is asked before each operation, "create", "write", "sync", "rename", "remove" or "read", which
  /// fails as it says.
  using Fault = std::function<Status(std::string_view operation, const std::string& path)>;
  void set_fault(Fault fault);
  /// Changes the bits of `mask` in a byte of a file; false when it has no such byte.
  bool damage(const std::string& path, uint64_t offset, uint8_t mask);
  /// All of a file; kNotFound.
  Result<std::string> contents(const std::string& path);

 private:
  friend class SimFile;

  struct Write {
    uint64_t offset;
    std::string bytes;
  };
  struct Inode {
    std::string now;
    std::string on_disk;
    std::vector<Write> unsynced;
  };
  using Names = std::map<std::string, std::shared_ptr<Inode>>;
  /// A change of a name: nullptr takes it away.
  struct NameChange {
    std::string directory;
    std::vector<std::pair<std::string, std::shared_ptr<Inode>>> sets;
  };

  // With mutex_.
  Status begin(std::string_view operation, const std::string& path);
  void change_names(NameChange change);
  [[nodiscard]] uint64_t bytes_used() const;
  static void apply(const NameChange& change, Names* names);
  static void apply(const Write& write, std::string* bytes);

  mutable std::mutex mutex_;
  Rng rng_;
  Names names_;
  Names names_on_disk_;
  std::vector<NameChange> unsynced_names_;
  uint64_t operations_ = 0;
  uint64_t stops_after_ = UINT64_MAX;
  uint64_t capacity_ = UINT64_MAX;
  Fault fault_;
};

}  // namespace sidereal::sys::sim
