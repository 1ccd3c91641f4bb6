#include "sidereal/security/tls_stream.h"

#include <openssl/err.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "sidereal/security/first_bytes.h"

namespace sidereal::security {

namespace {

constexpr size_t kRecordBytes = 16 << 10;       // The most that one record of TLS holds.
constexpr size_t kWaitingBytesMax = 512 << 10;  // Encrypted bytes that may wait for the socket.
constexpr size_t kOutBytesKept = 32 << 10;
constexpr size_t kDiscardBytesMax = 64 << 10;

std::string library_text() {
  const unsigned long code = ERR_peek_last_error();
  const char* reason = code != 0 ? ERR_reason_error_string(code) : nullptr;
  ERR_clear_error();
  return reason != nullptr ? reason : "the connection broke";
}

/// Whether the library's error says that somebody was not believed, on this side or the other.
bool is_about_certificates(unsigned long code) {
  if (ERR_GET_LIB(code) != ERR_LIB_SSL) return false;
  switch (ERR_GET_REASON(code)) {
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
    case SSL_R_BAD_SIGNATURE:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
      return true;
    default:
      return false;
  }
}

}  // namespace

TlsStream::TlsStream(Ssl ssl, std::unique_ptr<sys::Stream> inner, bool is_server)
    : ssl_(std::move(ssl)), inner_(std::move(inner)), is_server_(is_server) {}

BioMethod TlsStream::make_method() {
  BioMethod method(BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "sidereal stream"));
  if (method == nullptr) return nullptr;
  BIO_meth_set_read(method.get(), &TlsStream::bio_read);
  BIO_meth_set_write(method.get(), &TlsStream::bio_write);
  BIO_meth_set_ctrl(method.get(), &TlsStream::bio_control);
  return method;
}

bool TlsStream::attach(const BIO_METHOD* method) {
  BIO* const bio = BIO_new(method);
  if (bio == nullptr) return false;
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);  // Owns it now.
  return true;
}

int TlsStream::bio_read(BIO* bio, char* data, int bytes) {
  auto* const self = static_cast<TlsStream*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  if (self->first_at_ < self->first_.size()) {
    const size_t n = std::min(self->first_.size() - self->first_at_, static_cast<size_t>(bytes));
    std::copy_n(self->first_.data() + self->first_at_, n, data);
    self->first_at_ += n;
    return static_cast<int>(n);
  }
  const std::array<sys::IoSlice, 1> slice = {
      sys::IoSlice{reinterpret_cast<std::byte*>(data), static_cast<size_t>(bytes)}};
  const Result<sys::IoCount> got = self->inner_->readv(slice);
  if (!got.ok()) {
    self->failure_ = got.status();
    return -1;
  }
  if (got->would_block) {
    BIO_set_retry_read(bio);
    return -1;
  }
  if (got->end) self->inner_ended_ = true;
  return static_cast<int>(got->bytes);
}

// Never refuses: writev() stops before too much waits, and a handshake is short.
int TlsStream::bio_write(BIO* bio, const char* data, int bytes) {
  auto* const self = static_cast<TlsStream*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const auto* from = reinterpret_cast<const std::byte*>(data);
  self->out_.insert(self->out_.end(), from, from + bytes);
  return bytes;
}

long TlsStream::bio_control(BIO*, int command, long, void*) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

Status TlsStream::push() {
  while (holds_output()) {
    const std::array<sys::ConstIoSlice, 1> slice = {
        sys::ConstIoSlice{out_.data() + out_at_, out_.size() - out_at_}};
    const Result<sys::IoCount> sent = inner_->writev(slice);
    if (!sent.ok()) return sent.status();
    if (sent->would_block) return {};
    out_at_ += sent->bytes;
  }
  out_.clear();
  out_at_ = 0;
  // An idle connection holds little.
  if (out_.capacity() > kOutBytesKept) out_ = {};
  return {};
}

/// Unread input makes a close a reset, which would overtake the alert that says why.
void TlsStream::discard_input() {
  std::array<std::byte, 4096> buffer;
  const std::array<sys::IoSlice, 1> slice = {sys::IoSlice{buffer.data(), buffer.size()}};
  for (size_t seen = 0; seen < kDiscardBytesMax;) {
    const Result<sys::IoCount> got = inner_->readv(slice);
    if (!got.ok() || got->bytes == 0) return;
    seen += got->bytes;
  }
}

Result<bool> TlsStream::judge_first_bytes_of_client() {
  std::array<std::byte, kFirstBytesMax> buffer;
  const std::array<sys::IoSlice, 1> slice = {
      sys::IoSlice{buffer.data(), buffer.size() - first_.size()}};
  const Result<sys::IoCount> got = inner_->readv(slice);
  if (!got.ok()) return got.status();
  if (got->end) return base::unavailable("it closed the connection");
  if (got->would_block) return false;
  first_.append(reinterpret_cast<const char*>(buffer.data()), got->bytes);
  const auto* bytes = reinterpret_cast<const std::byte*>(first_.data());
  switch (judge_first_bytes({bytes, first_.size()}, true)) {
    case FirstBytes::kTooFew:
      return false;
    case FirstBytes::kGarbage:
      return base::data_loss("it does not speak TLS; are credentials given on one side only?");
    case FirstBytes::kGood:
      return true;
  }
  return false;
}

Status TlsStream::handshake_error(int error) {
  if (!failure_.ok()) return failure_;
  const unsigned long code = ERR_peek_last_error();
  if (error == SSL_ERROR_SYSCALL || code == 0 || inner_ended_) {
    ERR_clear_error();
    return base::unavailable("it closed the connection while shaking hands (TLS)");
  }
  (void)push();  // The alert that says why.
  discard_input();
  if (is_about_certificates(code)) {
    return base::unauthenticated(
        "{} (TLS): are both sides given the same secret, or certificates of one authority that "
        "name their hosts?",
        library_text());
  }
  // A client that was sent something else than TLS; a server has judged the first bytes.
  if (!is_server_) {
    return base::data_loss(
        "it does not speak TLS as this side does ({}); are credentials given on "
        "one side only?",
        library_text());
  }
  return base::unauthenticated("{} (TLS)", library_text());
}

Result<bool> TlsStream::connected() {
  if (shaken_) return true;
  if (!inner_connected_) {
    SR_ASSIGN_OR_RETURN(inner_connected_, inner_->connected());
    if (!inner_connected_) return false;
  }
  if (is_server_ && !judged_) {
    SR_ASSIGN_OR_RETURN(judged_, judge_first_bytes_of_client());
    if (!judged_) return false;
  }
  ERR_clear_error();
  const int done = SSL_do_handshake(ssl_.get());
  if (done != 1) {
    const int error = SSL_get_error(ssl_.get(), done);
    if (error != SSL_ERROR_WANT_READ) return handshake_error(error);
    SR_RETURN_IF_ERROR(push());
    return false;
  }
  SR_RETURN_IF_ERROR(push());
  shaken_ = true;
  drained_ = false;  // More than the handshake may have come.
  first_ = {};
  return true;
}

sys::Interest TlsStream::connecting_interest() const {
  if (!inner_connected_) return inner_->connecting_interest();
  return {.readable = true, .writable = holds_output()};
}

Status TlsStream::stream_error(int error) {
  if (!failure_.ok()) return failure_;
  const unsigned long code = ERR_peek_last_error();
  if (error == SSL_ERROR_SSL && is_about_certificates(code)) {
    return base::unauthenticated("it refused this side's certificate ({})", library_text());
  }
  return base::unavailable("{} (TLS)", library_text());
}

Result<sys::IoCount> TlsStream::readv(std::span<const sys::IoSlice> into) {
  sys::IoCount count;
  ERR_clear_error();
  for (const sys::IoSlice& slice : into) {
    size_t at = 0;
    while (at < slice.bytes) {
      size_t got = 0;
      if (SSL_read_ex(ssl_.get(), slice.data + at, slice.bytes - at, &got) == 1) {
        drained_ = false;
        at += got;
        count.bytes += got;
        continue;
      }
      const int error = SSL_get_error(ssl_.get(), 0);
      drained_ = error == SSL_ERROR_WANT_READ;
      if (count.bytes > 0) {
        ERR_clear_error();  // What is wrong shows again at the next call.
        return count;
      }
      if (drained_) return sys::IoCount{.would_block = true};
      if (error == SSL_ERROR_ZERO_RETURN || (inner_ended_ && failure_.ok())) {
        ERR_clear_error();
        return sys::IoCount{.end = true};
      }
      return stream_error(error);
    }
  }
  return count;
}

Result<sys::IoCount> TlsStream::writev(std::span<const sys::ConstIoSlice> from) {
  SR_RETURN_IF_ERROR(push());
  sys::IoCount count;
  ERR_clear_error();
  size_t at = 0;      // Slice that comes next.
  size_t offset = 0;  // Into that slice.
  while (at < from.size() && out_.size() - out_at_ < kWaitingBytesMax) {
    // One record of what comes next; small pieces are gathered.
    const std::byte* data = from[at].data + offset;
    size_t bytes = std::min(from[at].bytes - offset, kRecordBytes);
    if (bytes < kRecordBytes && at + 1 < from.size()) {
      gather_.resize(kRecordBytes);
      bytes = 0;
      size_t i = at;
      size_t skip = offset;
      for (; i < from.size() && bytes < kRecordBytes; ++i, skip = 0) {
        const size_t n = std::min(from[i].bytes - skip, kRecordBytes - bytes);
        std::memcpy(gather_.data() + bytes, from[i].data + skip, n);
        bytes += n;
      }
      data = gather_.data();
    }
    size_t written = 0;
    if (bytes > 0 && SSL_write_ex(ssl_.get(), data, bytes, &written) != 1) {
      return stream_error(SSL_get_error(ssl_.get(), 0));
    }
    count.bytes += written;
    for (size_t left = bytes; at < from.size();) {
      const size_t n = std::min(left, from[at].bytes - offset);
      offset += n;
      left -= n;
      if (offset < from[at].bytes) break;
      ++at;
      offset = 0;
    }
  }
  SR_RETURN_IF_ERROR(push());
  count.would_block = count.bytes == 0 && (at < from.size() || holds_output());
  return count;
}

}  // namespace sidereal::security
