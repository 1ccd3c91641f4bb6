#include "sidereal/ir/device_spec.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <utility>

#include "sidereal/base/strings.h"

namespace sidereal::ir {

using base::invalid_argument;

namespace {

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return out;
}

/// Reads the parts of one name.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<DeviceSpec> parse() {
    std::string_view rest = text_;
    if (rest == "/") rest = "";
    while (!rest.empty()) {
      if (rest[0] != '/') return malformed(rest, "it does not begin with '/'");
      rest.remove_prefix(1);
      const std::string_view part = rest.substr(0, rest.find('/'));
      rest.remove_prefix(part.size());
      SR_RETURN_IF_ERROR(read_part(part));
    }
    return std::move(out_);
  }

 private:
  Status malformed(std::string_view part, std::string_view why) const {
    return invalid_argument(
        "Malformed device specification '{}': '{}': {}; expected parts are /job:NAME, /replica:N, "
        "/task:N and /device:TYPE:N",
        text_, part, why);
  }

  Status read_part(std::string_view part) {
    const size_t colon = part.find(':');
    const std::string_view key = part.substr(0, colon);
    const std::string_view value =
        colon == std::string_view::npos ? std::string_view() : part.substr(colon + 1);
    if (key == "job") return read_name(part, value, &has_job_, &out_.job);
    if (key == "replica") return read_number(part, value, &has_replica_, &out_.replica);
    if (key == "task") return read_number(part, value, &has_task_, &out_.task);
    const std::string type = upper(key);
    const bool is_older = type == "CPU" || type == "GPU";
    if (key != "device" && !is_older) {
      return malformed(part, fmt::format("Unknown attribute '{}'", key));
    }
    if (has_device_) return malformed(part, "Multiple device types are not allowed");
    if (is_older) {
      out_.device_type = type;
      return read_number(part, value, &has_device_, &out_.device_index);
    }
    const size_t second = value.find(':');
    SR_RETURN_IF_ERROR(read_name(part, value.substr(0, second), &has_device_, &out_.device_type));
    if (second == std::string_view::npos) return {};
    bool has_index = false;
    return read_number(part, value.substr(second + 1), &has_index, &out_.device_index);
  }

  Status read_name(std::string_view part, std::string_view value, bool* seen,
                   std::optional<std::string>* out) {
    if (std::exchange(*seen, true)) return malformed(part, "it is there twice");
    if (value == "*") return {};
    if (!base::is_name(value)) {
      return malformed(part, "a name is a letter, then letters, digits and '_'");
    }
    *out = std::string(value);
    return {};
  }

  Status read_number(std::string_view part, std::string_view value, bool* seen,
                     std::optional<int>* out) {
    if (std::exchange(*seen, true)) return malformed(part, "it is there twice");
    if (value == "*") return {};
    const Result<int64_t> number = base::parse_int(value);
    if (!number.ok() || value[0] == '-' || *number > std::numeric_limits<int>::max()) {
      return malformed(part, "expected a number from 0 on, or '*'");
    }
    *out = static_cast<int>(*number);
    return {};
  }

  std::string_view text_;
  DeviceSpec out_;
  bool has_job_ = false;
  bool has_replica_ = false;
  bool has_task_ = false;
  bool has_device_ = false;
};

/// Whether both are set, and differ.
template <class T>
bool differ(const std::optional<T>& a, const std::optional<T>& b) {
  return a.has_value() && b.has_value() && *a != *b;
}

template <class T>
std::optional<T> first_set(const std::optional<T>& a, const std::optional<T>& b) {
  return a.has_value() ? a : b;
}

}  // namespace

Result<DeviceSpec> DeviceSpec::parse(std::string_view text) { return Parser(text).parse(); }

std::string DeviceSpec::to_string() const {
  std::string out;
  if (job.has_value()) out += "/job:" + *job;
  if (replica.has_value()) out += fmt::format("/replica:{}", *replica);
  if (task.has_value()) out += fmt::format("/task:{}", *task);
  if (device_type.has_value() || device_index.has_value()) {
    out += "/device:" + device_type.value_or("*") + ":";
    out += device_index.has_value() ? fmt::format("{}", *device_index) : "*";
  }
  return out;
}

bool DeviceSpec::is_full() const {
  return job.has_value() && replica.has_value() && task.has_value() && device_type.has_value() &&
         device_index.has_value();
}

bool DeviceSpec::fits(const DeviceSpec& device) const { return device.merged(*this) == device; }

DeviceSpec DeviceSpec::merged(const DeviceSpec& other) const {
  return {.job = first_set(other.job, job),
          .replica = first_set(other.replica, replica),
          .task = first_set(other.task, task),
          .device_type = first_set(other.device_type, device_type),
          .device_index = first_set(other.device_index, device_index)};
}

Result<DeviceSpec> merge_devices(const DeviceSpec& target, const DeviceSpec& other,
                                 MergeConflicts conflicts) {
  DeviceSpec out = target.merged(other);
  if (conflicts == MergeConflicts::kOtherWins) return out;
  const auto incompatible = [&](const char* what) {
    return invalid_argument("Cannot merge devices with incompatible {}: '{}' and '{}'", what,
                            target.to_string(), other.to_string());
  };
  if (differ(target.job, other.job)) return incompatible("jobs");
  if (differ(target.replica, other.replica)) return incompatible("replicas");
  if (differ(target.task, other.task)) return incompatible("tasks");
  const bool is_soft = conflicts == MergeConflicts::kSoft;
  if (differ(target.device_type, other.device_type)) {
    if (!is_soft) return incompatible("types");
    out.device_type.reset();
    out.device_index.reset();
  } else if (differ(target.device_index, other.device_index)) {
    if (!is_soft) return incompatible("ids");
    out.device_index.reset();
  }
  return out;
}

Result<std::string> canonical_device_name(std::string_view name, std::string_view base) {
  SR_ASSIGN_OR_RETURN(const DeviceSpec whole, DeviceSpec::parse(base));
  if (!whole.is_full()) {
    return invalid_argument(
        "the base name '{}' does not name one device: it needs /job, /replica, "
        "/task and /device with a number",
        base);
  }
  SR_ASSIGN_OR_RETURN(const DeviceSpec given, DeviceSpec::parse(name));
  return whole.merged(given).to_string();
}

bool is_same_address_space(const DeviceSpec& a, const DeviceSpec& b) {
  return a.job.has_value() && a.replica.has_value() && a.task.has_value() && a.job == b.job &&
         a.replica == b.replica && a.task == b.task;
}

}  // namespace sidereal::ir
