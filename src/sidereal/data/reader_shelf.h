#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "sidereal/data/prefetch.h"

namespace sidereal::data {

/// Keeps readers in the middle of their data, with what they have read ahead, for whoever goes on
/// exactly there.
/// Thread: any; all but put() may wait for a reading thread.
class ReaderShelf {
 public:
  /// The reader that would give out just what one opened like this would, if there is one, else
  /// nullptr.
  std::unique_ptr<PrefetchingReader> take(const DataSpec& spec, const PrefetchOptions& options);
  /// Keeps a reader.
  void put(std::unique_ptr<PrefetchingReader> reader);
  /// Ends all that are kept.
  void clear();
  /// clear(), and nothing is kept from then on.
  void close();

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<PrefetchingReader>> readers_;
  bool is_closed_ = false;
};

}  // namespace sidereal::data
