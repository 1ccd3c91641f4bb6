#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "sidereal/resources/space_saving.h"

/// Which rows of tables are used most.
namespace sidereal::resources {

/// Finds the rows of a variable that calls of one kind, pulls or pushes, name most, in the last
/// minutes: it looks at some of them, which are drawn, so that it is some thousand a minute at most
/// however many there are, and counts those. All counts are halved once a minute, on all lanes and
/// tasks at once. Takes no memory before the first call.
/// Thread: that of the variable's value, but for what says otherwise.
class HotRows {
 public:
  /// What is known of a row that was met less often is chance.
  static constexpr int64_t kMetMin = 8;

  HotRows() = default;
  ~HotRows();
  HotRows(const HotRows&) = delete;
  HotRows& operator=(const HotRows&) = delete;

  /// A call names these rows.
  void note(std::span<const int64_t> rows) {
    if (rows.size() <= skip_) {
      skip_ -= rows.size();
      return;
    }
    look_at(rows);
  }

  /// Rows and how many names of them there were, as it is estimated, those of which most are known
  /// to be first, at most `rows_max`. Counts are of a window that ends `now` and is somewhat longer
  /// than a minute. Thread: any.
  [[nodiscard]] RowCounts read(size_t rows_max, std::chrono::system_clock::time_point now) const;

 private:
  struct Sample;
  void look_at(std::span<const int64_t> rows);

  size_t skip_ = 0;                        // Rows to the next one that is looked at.
  std::atomic<Sample*> sample_ = nullptr;  // Its own.
};

/// Those of both kinds of calls. Thread: as HotRows.
struct HotRowsOfCalls {
  HotRows pulls;
  HotRows pushes;
};

}  // namespace sidereal::resources
