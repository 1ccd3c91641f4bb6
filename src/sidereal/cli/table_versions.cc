#include "sidereal/cli/table_versions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace sidereal::cli {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kCurrent = "tables.safetensors";
constexpr std::string_view kBefore = "tables-";
constexpr std::string_view kAfter = ".safetensors";

std::string name_of(uint64_t version) { return fmt::format("{}{}{}", kBefore, version, kAfter); }

std::optional<uint64_t> version_of(std::string_view name) {
  if (!name.starts_with(kBefore) || !name.ends_with(kAfter)) return std::nullopt;
  name.remove_prefix(kBefore.size());
  if (name.size() <= kAfter.size()) return std::nullopt;
  name.remove_suffix(kAfter.size());
  uint64_t out = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), out);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return out;
}

Status failed(std::string_view what, const fs::path& path, const std::error_code& error) {
  return base::unavailable("{} cannot be {}: {}", path.string(), what, error.message());
}

/// The version that tables.safetensors is; nothing: it is none, or not there.
std::optional<uint64_t> current_in(const std::string& folder) {
  std::error_code error;
  const fs::path to = fs::read_symlink(table_file(folder), error);
  return error ? std::nullopt : version_of(to.string());
}

Status make_current(const std::string& folder, uint64_t version) {
  const fs::path link = table_file(folder);
  const fs::path made = link.string() + ".link";
  std::error_code error;
  fs::remove(made, error);
  fs::create_symlink(name_of(version), made, error);
  if (error) return failed("made", made, error);
  fs::rename(made, link, error);
  return error ? failed("replaced", link, error) : Status();
}

}  // namespace

std::string table_file(const std::string& folder) { return (fs::path(folder) / kCurrent).string(); }

Result<std::vector<uint64_t>> versions_in(const std::string& folder) {
  std::vector<uint64_t> out;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::optional<uint64_t> version = version_of(it->path().filename().string());
    if (version.has_value()) out.push_back(*version);
  }
  if (error) return failed("read", folder, error);
  std::ranges::sort(out);
  return out;
}

Result<WrittenVersion> write_version(const std::string& folder, const Tables& tables, int keep) {
  SR_ASSIGN_OR_RETURN(std::vector<uint64_t> versions, versions_in(folder));
  const uint64_t latest = versions.empty() ? 0 : versions.back();
  WrittenVersion out{.number = latest + 1, .current = latest + 1};
  SR_RETURN_IF_ERROR(write_tables((fs::path(folder) / name_of(out.number)).string(), tables));
  versions.push_back(out.number);
  const std::optional<uint64_t> current = current_in(folder);
  if (current.has_value() && *current != latest && std::ranges::count(versions, *current) > 0) {
    out.current = *current;
  } else {
    SR_RETURN_IF_ERROR(make_current(folder, out.number));
  }
  for (size_t i = 0; i + static_cast<size_t>(keep) < versions.size(); ++i) {
    std::error_code error;
    if (versions[i] != out.current) fs::remove(fs::path(folder) / name_of(versions[i]), error);
    if (error) return failed("removed", fs::path(folder) / name_of(versions[i]), error);
  }
  return out;
}

Result<uint64_t> roll_back(const std::string& folder, std::optional<uint64_t> to) {
  SR_ASSIGN_OR_RETURN(const std::vector<uint64_t> versions, versions_in(folder));
  if (versions.empty()) {
    return base::failed_precondition(
        "{} has no versions of tables; `sidereal follow --keep N "
        "--out {}` makes them",
        folder, folder);
  }
  if (!to.has_value()) {
    const uint64_t is = current_in(folder).value_or(versions.back() + 1);
    const auto next = std::ranges::lower_bound(versions, is);
    if (next == versions.begin()) {
      return base::not_found("{} is version {}, before which there is none; there are: {}",
                             table_file(folder), is, fmt::join(versions, ", "));
    }
    to = *std::prev(next);
  }
  if (!std::ranges::binary_search(versions, *to)) {
    return base::not_found("{} has no version {}; there are: {}", folder, *to,
                           fmt::join(versions, ", "));
  }
  SR_RETURN_IF_ERROR(make_current(folder, *to));
  return *to;
}

}  // namespace sidereal::cli
