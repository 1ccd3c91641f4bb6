#pragma once

#include <memory>
#include <string>

#include "sidereal/security/credentials.h"

/// For tests: folders that remove themselves, and authorities that sign certificates.
namespace sidereal::security {

/// A new folder, removed with what is in it.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  [[nodiscard]] std::string path(const std::string& name) const;
  /// Writes a file and returns its path.
  [[nodiscard]] std::string write(const std::string& name, const std::string& text) const;

 private:
  std::string path_;
};

/// Signs certificates (P-256).
class Authority {
 public:
  explicit Authority(const std::string& name);
  ~Authority();
  Authority(const Authority&) = delete;
  Authority& operator=(const Authority&) = delete;

  /// Writes NAME.pem, NAME.key and NAME.ca into `folder`: a certificate for `ip` that is good for
  /// `seconds` from now.
  [[nodiscard]] SecurityOptions issue(const TempFolder& folder, const std::string& name,
                                      const std::string& ip, int seconds = 3600) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sidereal::security
