#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "sidereal/base/status.h"

namespace sidereal::ir {

/// Names of devices, whole ones such as "/job:ps/replica:0/task:0/device:CPU:0" and parts of them,
/// which say what a device must be and leave the rest open. A field that is not set fits every
/// device. Value type; immutable by use. Source: TensorFlow's DeviceSpec and DeviceNameUtils.
struct DeviceSpec {
  std::optional<std::string> job;
  std::optional<int> replica;
  std::optional<int> task;
  std::optional<std::string> device_type;  ///< "CPU", "GPU".
  std::optional<int> device_index;

  /// Reads "/job:NAME", "/replica:INT", "/task:INT", "/device:TYPE:INT" and the older "/cpu:INT",
  /// "/gpu:INT" (their types become upper case), each at most once, in any order; "*" leaves a
  /// field open. "" and "/" leave all open. Names are [A-Za-z][A-Za-z0-9_]*; numbers are not
  /// negative. Errors: kInvalidArgument naming the part that is no part of a device's name.
  static Result<DeviceSpec> parse(std::string_view text);

  /// The fields that are set, in the order job, replica, task, device; "/device:GPU:*" for a type
  /// without an index. parse() gives the same spec back.
  [[nodiscard]] std::string to_string() const;

  /// Nothing is set.
  [[nodiscard]] bool empty() const { return *this == DeviceSpec(); }
  /// Everything is set: the name of one device.
  [[nodiscard]] bool is_full() const;
  /// Every field set here is the same in `device`.
  [[nodiscard]] bool fits(const DeviceSpec& device) const;
  /// These fields, and those of `other` over them: what a device scope inside another one means.
  [[nodiscard]] DeviceSpec merged(const DeviceSpec& other) const;

  friend bool operator==(const DeviceSpec&, const DeviceSpec&) = default;
};

/// What merge_devices() does where both specs set a field, to different values.
enum class MergeConflicts {
  kRefuse,     ///< kInvalidArgument naming both.
  kSoft,       ///< As kRefuse for job, replica and task; a type or an index is left open.
  kOtherWins,  ///< The value of `other`.
};

/// What both specs ask for, as TensorFlow's DeviceNameUtils::MergeDevNames() and its variants.
/// Errors: kInvalidArgument ("Cannot merge devices with incompatible jobs: ...").
Result<DeviceSpec> merge_devices(const DeviceSpec& target, const DeviceSpec& other,
                                 MergeConflicts conflicts = MergeConflicts::kRefuse);

/// The full name that `name` stands for on the device `base`: fields that are not set are those of
/// `base`. Errors: kInvalidArgument when either does not parse, or `base` is no full name.
Result<std::string> canonical_device_name(std::string_view name, std::string_view base);

/// True when two full names are of one task, whose devices pass tensors by reference.
bool is_same_address_space(const DeviceSpec& a, const DeviceSpec& b);

/// Where a session puts what its graph asks for elsewhere, as it has moved. Value type.
struct PlacementOverrides {
  /// Of variables in no container, by the name that they are shared by: the full name of a device,
  /// where all goes that is joined with them, whatever it asks for.
  std::map<std::string, std::string, std::less<>> variables;
  /// Full names of tasks that are not used any more: what asks for one goes to the other.
  std::map<std::string, std::string, std::less<>> tasks;

  [[nodiscard]] bool empty() const { return variables.empty() && tasks.empty(); }
  friend bool operator==(const PlacementOverrides&, const PlacementOverrides&) = default;
};

}  // namespace sidereal::ir
