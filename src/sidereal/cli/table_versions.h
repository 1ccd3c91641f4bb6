#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/cli/followed_tables.h"

/// Versions of a file of tables in a folder: tables-1.safetensors, tables-2.safetensors ..., and
/// tables.safetensors, a link to one of them, which changes at once. A link that is not to the
/// latest one was rolled back, and stays until it is moved again.
namespace sidereal::cli {

/// "DIR/tables.safetensors".
std::string table_file(const std::string& folder);

/// What became of a file of tables. Value type.
struct WrittenVersion {
  uint64_t number = 0;
  uint64_t current = 0;  ///< That tables.safetensors is; another one after it was rolled back.
};

/// Writes the next version, whole or not at all, and removes those that are neither among the last
/// `keep` nor what tables.safetensors is.
Result<WrittenVersion> write_version(const std::string& folder, const Tables& tables, int keep);

/// Makes tables.safetensors version `to`, or the one before what it is; gives its number. kNotFound
/// naming the versions that there are; kFailedPrecondition for a folder without versions.
Result<uint64_t> roll_back(const std::string& folder, std::optional<uint64_t> to);

/// Those in a folder, in order.
Result<std::vector<uint64_t>> versions_in(const std::string& folder);

}  // namespace sidereal::cli
