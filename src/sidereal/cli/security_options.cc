#include "sidereal/cli/security_options.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <string>

namespace sidereal::cli {

namespace {

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

void add_security_options(CLI::App* command, security::SecurityOptions* options) {
  const char* group = "Security";
  const auto file = [&](const char* name, std::string* path, const char* doc) {
    command->add_option(name, *path, doc)->type_name("FILE")->default_str("")->group(group);
  };
  file("--secret-file", &options->secret_file,
       "the cluster's secret, at least 16 random bytes; without options here, the file named in "
       "SIDEREAL_SECRET_FILE, or what is in SIDEREAL_SECRET");
  file("--certificate-file", &options->certificate_file,
       "instead of a secret: this task's certificate");
  file("--key-file", &options->key_file, "the private key of that certificate");
  file("--ca-file", &options->ca_file, "the authority that signed all members' certificates");
  command
      ->add_flag("--insecure", options->insecure,
                 "instead of a secret: nothing; whoever can connect is let in")
      ->group(group);
}

Result<security::SecurityOptions> complete_security_options(
    const security::SecurityOptions& options) {
  security::SecurityOptions all = options;
  const bool said = options.insecure || !options.secret_file.empty() ||
                    !options.certificate_file.empty() || !options.key_file.empty() ||
                    !options.ca_file.empty();
  if (said) return all;
  all.secret_file = environment("SIDEREAL_SECRET_FILE");
  all.secret = environment("SIDEREAL_SECRET");
  if (!all.secret_file.empty() && !all.secret.empty()) {
    return base::invalid_argument(
        "SIDEREAL_SECRET_FILE and SIDEREAL_SECRET are both set; unset one of them");
  }
  return all;
}

}  // namespace sidereal::cli
