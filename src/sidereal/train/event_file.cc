#include "sidereal/train/event_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "sidereal/base/bytes.h"
#include "sidereal/data/record_reader.h"
#include "sidereal/sys/posix/posix.h"

namespace sidereal::train {
namespace {

// Messages of TensorFlow, of which these are the numbers of fields.
constexpr uint32_t kEventTime = 1;
constexpr uint32_t kEventStep = 2;
constexpr uint32_t kEventFileVersion = 3;
constexpr uint32_t kEventSummary = 5;
constexpr uint32_t kSummaryValue = 1;
constexpr uint32_t kValueTag = 1;
constexpr uint32_t kValueSimple = 2;
constexpr uint32_t kValueHistogram = 5;
constexpr uint32_t kValueTensor = 8;
constexpr uint32_t kValueMetadata = 9;
constexpr uint32_t kTensorDtype = 1;
constexpr uint32_t kTensorShape = 2;
constexpr uint32_t kTensorStrings = 8;
constexpr uint64_t kString = 7;

enum class Wire : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

constexpr size_t kBuckets = 30;

std::string varint(uint64_t number) {
  std::string out;
  for (; number > 0x7F; number >>= 7) out += static_cast<char>(number | 0x80);
  return out + static_cast<char>(number);
}

std::string head(uint32_t field, Wire wire) {
  return varint(field << 3 | static_cast<uint32_t>(wire));
}

std::string field(uint32_t number, std::string_view bytes) {
  return head(number, Wire::kBytes) + varint(bytes.size()) + std::string(bytes);
}

std::string field(uint32_t number, uint64_t value) {
  return head(number, Wire::kVarint) + varint(value);
}

template <class T>
std::string fixed(uint32_t number, T value) {
  base::ByteWriter out;
  out.put(value);
  return head(number, sizeof(T) == 8 ? Wire::kFixed64 : Wire::kFixed32) + out.take();
}

std::string packed(uint32_t number, std::span<const double> values) {
  base::ByteWriter out;
  for (const double value : values) out.put(value);
  return field(number, out.bytes());
}

double now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

Status file_error(const std::string& path, int error) {
  const std::string text =
      fmt::format("{}: the file of events cannot be written: {}", path, std::strerror(error));
  if (error == ENOSPC || error == EDQUOT) return base::resource_exhausted("{}", text);
  if (error == ENOENT || error == ENOTDIR || error == EEXIST) return base::not_found("{}", text);
  return base::permission_denied("{}", text);
}

}  // namespace

void Summary::value(std::string_view tag, std::string_view content) {
  bytes_ += field(kSummaryValue, field(kValueTag, tag) + std::string(content));
}

void Summary::scalar(std::string_view tag, double value) {
  this->value(tag, fixed(kValueSimple, static_cast<float>(value)));
}

void Summary::histogram(std::string_view tag, std::span<const float> values) {
  double low = 0;
  double high = 0;
  double sum = 0;
  double squares = 0;
  int64_t count = 0;
  for (const float each : values) {
    if (!std::isfinite(each)) continue;
    const double value = each;
    low = count == 0 ? value : std::min(low, value);
    high = count == 0 ? value : std::max(high, value);
    sum += value;
    squares += value * value;
    ++count;
  }
  const double width = (high - low) / static_cast<double>(kBuckets);
  std::array<double, kBuckets> limits = {};
  std::array<double, kBuckets> counts = {};
  for (size_t i = 0; i < kBuckets; ++i) limits[i] = low + width * static_cast<double>(i + 1);
  for (const float each : values) {
    if (!std::isfinite(each)) continue;
    const double at = width > 0 ? (each - low) / width : 0;
    ++counts[std::min(static_cast<size_t>(at), kBuckets - 1)];
  }
  value(tag, field(kValueHistogram, fixed(1, low) + fixed(2, high) +
                                        fixed(3, static_cast<double>(count)) + fixed(4, sum) +
                                        fixed(5, squares) + packed(6, limits) + packed(7, counts)));
}

void Summary::histogram(std::string_view tag, const metrics::HistogramSnapshot& seen) {
  std::vector<double> limits;
  std::vector<double> counts;
  double squares = 0;
  double low = 0;
  double from = 0;  // The least value of a bucket.
  for (size_t i = 0; i < seen.counts.size(); ++i) {
    const auto most = static_cast<double>(metrics::Histogram::bucket_limit(i));
    const auto count = static_cast<double>(seen.counts[i]);
    if (count > 0 && counts.empty()) low = from;
    if (count > 0 || !counts.empty()) {
      counts.push_back(count);
      limits.push_back(most + 0.5);  // All of a bucket is below its limit.
    }
    squares += count * (from + most) * (from + most) / 4;
    from = most + 1;
  }
  while (!counts.empty() && counts.back() == 0) {
    counts.pop_back();
    limits.pop_back();
  }
  value(tag, field(kValueHistogram, fixed(1, low) + fixed(2, static_cast<double>(seen.max)) +
                                        fixed(3, static_cast<double>(seen.count)) +
                                        fixed(4, static_cast<double>(seen.sum)) +
                                        fixed(5, squares) + packed(6, limits) + packed(7, counts)));
}

void Summary::text(std::string_view tag, std::string_view text) {
  const std::string plugin = field(1, field(1, "text"));
  const std::string tensor =
      field(kTensorDtype, kString) + field(kTensorShape, "") + field(kTensorStrings, text);
  value(tag, field(kValueMetadata, plugin) + field(kValueTensor, tensor));
}

Result<std::unique_ptr<EventFile>> EventFile::create(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return file_error(folder, error.value());
  // By the words before the number TensorBoard knows such files; two of a second differ by it.
  const std::string path = fmt::format("{}/events.out.tfevents.{:010.0f}.{:016x}", folder,
                                       std::floor(now()), sys::posix::create_random()->next());
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return file_error(path, errno);
  std::unique_ptr<EventFile> made(new EventFile(path, file));
  SR_RETURN_IF_ERROR(made->write(fixed(kEventTime, now()) +
                                 field(kEventFileVersion, std::string_view("brain.Event:2"))));
  return made;
}

EventFile::~EventFile() { std::fclose(file_); }

Status EventFile::add(int64_t step, const Summary& summary) {
  return write(fixed(kEventTime, now()) + field(kEventStep, static_cast<uint64_t>(step)) +
               field(kEventSummary, summary.bytes()));
}

Status EventFile::write(std::string_view event) {
  const std::string record = data::record_of(event);
  const bool is_written = std::fwrite(record.data(), 1, record.size(), file_) == record.size() &&
                          std::fflush(file_) == 0;
  return is_written ? Status() : file_error(path_, errno);
}

}  // namespace sidereal::train
