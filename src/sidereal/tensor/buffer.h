#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "sidereal/base/ref_counted.h"

namespace sidereal::tensor {

/// Thrown by what must have memory and gets none.
class OutOfMemory final : public std::bad_alloc {
 public:
  explicit OutOfMemory(size_t bytes);
  [[nodiscard]] const char* what() const noexcept override { return text_.data(); }

 private:
  std::array<char, 96> text_;  // Making it takes no memory.
};

/// A block of memory, aligned to 64 bytes; from 2 MiB on, huge pages are asked for.
/// Resource, shared: tensors, messages being sent and NumPy arrays may hold the same bytes.
/// Thread: immutable handle; the bytes belong to whoever is said to write them.
class Buffer final : public base::RefCounted {
 public:
  using Ptr = base::RefPtr<Buffer>;

  /// Uninitialised memory of at least `bytes` bytes. Throws OutOfMemory when the machine has none,
  /// which ends the process but where a kernel runs.
  static Ptr allocate(size_t bytes);
  /// Zeroed memory; pages are not touched until used.
  static Ptr allocate_zeroed(size_t bytes);
  /// As allocate() and allocate_zeroed(), but nullptr when the machine has no such memory: for
  /// sizes that come from users or peers. All buffers from 2 MiB on may together have as much as
  /// the machine has, or limit_memory() says: what is above is refused at once, where the system
  /// would end the process when the memory is used.
  static Ptr try_allocate(size_t bytes);
  static Ptr try_allocate_zeroed(size_t bytes);
  /// As try_allocate_zeroed(), for what moves there from `old`, piece by piece, with discard()
  /// after each: the bytes of `old` count no longer.
  static Ptr try_allocate_instead_of(std::span<Buffer* const> old, size_t bytes);
  /// Memory that somebody else owns; `release` is called when the last holder lets go.
  static Ptr wrap(void* data, size_t bytes, std::function<void()> release);

  /// Bytes that all buffers of the process from 2 MiB on may have together. Thread: any.
  static void limit_memory(size_t bytes);

  Buffer(void* data, size_t bytes, std::function<void()> release);
  ~Buffer() override;

  /// Keeps `held` alive as long as this buffer: the bytes that the views of a string tensor show.
  /// Only while nobody else uses the buffer.
  void keep(std::shared_ptr<const void> held);
  /// Keeps what `other` keeps.
  void keep_all_of(const Buffer& other);
  [[nodiscard]] const std::vector<std::shared_ptr<const void>>& kept() const { return kept_; }

  /// Gives pages back whose bytes are all in [from, to) and not needed any more: they become zero.
  /// Whole huge pages only. Returns where the next piece begins that can be given back, at most
  /// `to`. By the only holder. Thread: any, of other bytes.
  size_t discard(size_t from, size_t to);

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }

  /// Where a buffer goes that nobody holds any more.
  class Home {
   public:
    virtual ~Home() = default;
    /// `buffer` is the home's: to be deleted, or given to somebody again(). Thread: any.
    virtual void take_back(Buffer* buffer) = 0;
  };
  /// `home` lasts longer than the buffer. By the only holder.
  void set_home(Home* home) { home_ = home; }
  /// The only holder of what the home had.
  Ptr again();
  /// The home's own, while nobody holds the buffer: for lists,
  Buffer* next = nullptr;
  /// and where it belongs there.
  size_t place = 0;

 private:
  void unheld() override;

  std::byte* data_;
  size_t bytes_;
  bool has_pages_ = false;  // Of its own: from 2 MiB on.
  size_t counted_ = 0;      // Of all that such buffers may have.
  Home* home_ = nullptr;
  std::function<void()> release_;
  std::vector<std::shared_ptr<const void>> kept_;  // Without repeats.
};

}  // namespace sidereal::tensor
