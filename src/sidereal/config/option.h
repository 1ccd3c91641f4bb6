#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "sidereal/base/status.h"

namespace sidereal::config {

/// Describes one whole-number member of an options struct `S`. The default is what a
/// default-constructed `S` holds. Value type.
template <class S>
struct IntField {
  const char* name;  ///< as users write it, such as "spin_us"
  const char* unit;  ///< "us", "bytes", or "" for a plain number
  int64_t min;       ///< smallest value allowed
  int64_t max;       ///< largest value allowed
  int64_t S::*member;
  const char* doc;  ///< one sentence
};

namespace internal {
Status check_range(const char* name, const char* unit, int64_t min, int64_t max, int64_t value);
Result<int64_t> parse_value(const char* name, const char* unit, std::string_view text);
std::string render_line(const char* name, const char* unit, int64_t min, int64_t max,
                        int64_t default_value, int64_t value, const char* doc);
Status unknown_option(std::string_view name, const std::string& known);
}  // namespace internal

/// kInvalidArgument naming the first member out of its range, with value, unit and range.
template <class S>
Status validate(const S& options, std::span<const IntField<S>> fields) {
  for (const IntField<S>& f : fields) {
    SR_RETURN_IF_ERROR(internal::check_range(f.name, f.unit, f.min, f.max, options.*f.member));
  }
  return {};
}

/// Sets the member called `name` from text. An unknown name, text that is no number or a value out
/// of range is kInvalidArgument saying what is allowed; `options` is then unchanged.
template <class S>
Status set_option(S& options, std::span<const IntField<S>> fields, std::string_view name,
                  std::string_view text) {
  std::string known;
  for (const IntField<S>& f : fields) {
    if (name == f.name) {
      SR_ASSIGN_OR_RETURN(int64_t value, internal::parse_value(f.name, f.unit, text));
      SR_RETURN_IF_ERROR(internal::check_range(f.name, f.unit, f.min, f.max, value));
      options.*f.member = value;
      return {};
    }
    known += known.empty() ? f.name : std::string(", ") + f.name;
  }
  return internal::unknown_option(name, known);
}

/// One line per option: name, value, unit, range, default, doc.
template <class S>
std::string render_options(const S& options, std::span<const IntField<S>> fields) {
  const S defaults;
  std::string out;
  for (const IntField<S>& f : fields) {
    out += internal::render_line(f.name, f.unit, f.min, f.max, defaults.*f.member,
                                 options.*f.member, f.doc);
  }
  return out;
}

}  // namespace sidereal::config
