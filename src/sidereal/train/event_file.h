#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "sidereal/base/status.h"
#include "sidereal/metrics/histogram.h"

namespace sidereal::train {

/// What TensorBoard shows of one step: a message Summary in the making. Value type.
class Summary {
 public:
  void scalar(std::string_view tag, double value);
  /// How many of the finite `values` lie where, in buckets of one width.
  void histogram(std::string_view tag, std::span<const float> values);
  /// What was counted, in its own buckets.
  void histogram(std::string_view tag, const metrics::HistogramSnapshot& seen);
  /// Markdown.
  void text(std::string_view tag, std::string_view text);

  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  void value(std::string_view tag, std::string_view content);

  std::string bytes_;
};

/// A file of events, as TensorBoard reads them while they are written. Thread: core-local.
class EventFile {
 public:
  /// A new file in `folder`, which is made. kPermissionDenied and the like name it.
  static Result<std::unique_ptr<EventFile>> create(const std::string& folder);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  /// Everything is in the file when it returns. kResourceExhausted when the disk is full.
  Status add(int64_t step, const Summary& summary);

 private:
  EventFile(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}
  Status write(std::string_view event);

  std::string path_;
  std::FILE* file_;
};

}  // namespace sidereal::train
