#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "sidereal/cli/commands.h"
#include "sidereal/cli/security_options.h"
#include "sidereal/security/credentials.h"

namespace sidereal::cli {

namespace {

constexpr const char* kFooter =
    R"(For programs that know certificates and not secrets, such as Prometheus. Whoever can read the
key is a member of the cluster: keep it as the secret.

Example:
  sidereal certificate --secret-file cluster.secret --directory /etc/prometheus)";

struct CertificateArguments {
  std::string directory = ".";
  security::SecurityOptions security;
};

/// A new file that its owner alone can read.
Status write_file(const std::filesystem::path& path, const std::string& text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) {
    return base::failed_precondition(
        "{} cannot be made; is it there already, or is its folder not?", path.string());
  }
  const ssize_t written = write(file, text.data(), text.size());
  const bool closed = close(file) == 0;
  if (closed && written == static_cast<ssize_t>(text.size())) return {};
  return base::unavailable("{} could not be written in full", path.string());
}

Status write_certificate(const CertificateArguments& a) {
  SR_ASSIGN_OR_RETURN(const security::SecurityOptions options,
                      complete_security_options(a.security));
  SR_ASSIGN_OR_RETURN(const auto credentials, security::Credentials::create(options));
  if (std::string_view(credentials->kind()) != "secret") {
    return base::invalid_argument("which cluster? Give --secret-file");
  }
  const std::filesystem::path directory(a.directory);
  const security::TlsMaterial material = credentials->tls_material();
  SR_RETURN_IF_ERROR(write_file(directory / "cluster.key", material.private_key));
  return write_file(directory / "cluster.pem", material.certificate);
}

}  // namespace

void add_certificate(CLI::App* app, Action* action) {
  auto a = std::make_shared<CertificateArguments>();
  CLI::App* command = app->add_subcommand(
      "certificate", "write the certificate that a secret stands for, and its key");
  command->option_defaults()->always_capture_default();
  command->add_option("--directory", a->directory, "where to write cluster.pem and cluster.key")
      ->type_name("DIR");
  add_security_options(command, &a->security);
  command->footer(kFooter);
  command->final_callback([a, action] { *action = [a] { return write_certificate(*a); }; });
}

}  // namespace sidereal::cli
