#include "sidereal/data/reader_shelf.h"

#include <utility>

namespace sidereal::data {

std::unique_ptr<PrefetchingReader> ReaderShelf::take(const DataSpec& spec,
                                                     const PrefetchOptions& options) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < readers_.size(); ++i) {
    if (!readers_[i]->go_on_as(spec, options)) continue;
    std::unique_ptr<PrefetchingReader> out = std::move(readers_[i]);
    readers_.erase(readers_.begin() + static_cast<std::ptrdiff_t>(i));
    return out;
  }
  return nullptr;
}

void ReaderShelf::put(std::unique_ptr<PrefetchingReader> reader) {
  // Ended outside of the lock.
  std::unique_ptr<PrefetchingReader> late;
  const std::lock_guard lock(mutex_);
  if (is_closed_) {
    late = std::move(reader);
  } else {
    readers_.push_back(std::move(reader));
  }
}

void ReaderShelf::clear() {
  std::vector<std::unique_ptr<PrefetchingReader>> old;
  {
    const std::lock_guard lock(mutex_);
    old.swap(readers_);
  }
}

void ReaderShelf::close() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  clear();
}

}  // namespace sidereal::data
