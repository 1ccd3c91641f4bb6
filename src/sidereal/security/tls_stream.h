#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sidereal/security/openssl.h"
#include "sidereal/sys/network.h"

namespace sidereal::security {

/// TLS over another stream: the one thing that Tls makes. Thread: one at a time.
class TlsStream final : public sys::Stream {
 public:
  /// Takes over both; `method` must outlive it.
  TlsStream(Ssl ssl, std::unique_ptr<sys::Stream> inner, bool is_server);

  /// How OpenSSL reads and writes: through a TlsStream.
  static BioMethod make_method();
  /// Makes OpenSSL use this stream. Once, before anything else. False when memory has run out.
  [[nodiscard]] bool attach(const BIO_METHOD* method);

  [[nodiscard]] int handle() const override { return inner_->handle(); }
  Result<bool> connected() override;
  [[nodiscard]] sys::Interest connecting_interest() const override;
  Result<sys::IoCount> readv(std::span<const sys::IoSlice> into) override;
  Result<sys::IoCount> writev(std::span<const sys::ConstIoSlice> from) override;
  [[nodiscard]] bool holds_input() const override { return shaken_ && !drained_; }
  [[nodiscard]] bool holds_output() const override { return out_at_ < out_.size(); }
  [[nodiscard]] bool is_local() const override { return inner_->is_local(); }

 private:
  static int bio_read(BIO* bio, char* data, int bytes);
  static int bio_write(BIO* bio, const char* data, int bytes);
  static long bio_control(BIO* bio, int command, long number, void* pointer);

  Result<bool> judge_first_bytes_of_client();
  Status handshake_error(int error);
  Status stream_error(int error);
  /// Sends what waits, as far as the socket takes it.
  Status push();
  void discard_input();

  Ssl ssl_;
  std::unique_ptr<sys::Stream> inner_;
  const bool is_server_;
  bool inner_connected_ = false;
  bool judged_ = false;  // the client's first bytes are those of TLS
  bool shaken_ = false;
  bool drained_ = true;  // the inner stream would block, and nothing is left inside
  bool inner_ended_ = false;
  Status failure_;     // of the inner stream
  std::string first_;  // bytes read to be judged; OpenSSL gets them first
  size_t first_at_ = 0;
  std::vector<std::byte> out_;  // encrypted bytes that wait
  size_t out_at_ = 0;
  std::vector<std::byte> gather_;  // small pieces that become one record
};

}  // namespace sidereal::security
