#pragma once

#include "sidereal/base/status.h"
#include "sidereal/security/credentials.h"

namespace CLI {
class App;
}  // namespace CLI

namespace sidereal::cli {

/// Adds the options that say how members of a cluster know one another: files only, because the
/// arguments of a process can be read by everybody on its machine. Borrows `options`.
void add_security_options(CLI::App* command, security::SecurityOptions* options);

/// What the options say; when they say nothing, the secret of SIDEREAL_SECRET_FILE or
/// SIDEREAL_SECRET in the environment. kInvalidArgument when both are set.
Result<security::SecurityOptions> complete_security_options(
    const security::SecurityOptions& options);

}  // namespace sidereal::cli
