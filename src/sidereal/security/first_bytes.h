#pragma once

#include <cstddef>
#include <span>

namespace sidereal::security {

/// Bytes that judge_first_bytes() looks at; with so many it knows.
inline constexpr size_t kFirstBytesMax = 256;

enum class FirstBytes { kTooFew, kGood, kGarbage };

/// Whether a connection begins like the hello of a TLS client (RFC 8446: a handshake record whose
/// first message is ClientHello), or, without `tls`, with the preface of HTTP/2 (RFC 9113, 3.4).
FirstBytes judge_first_bytes(std::span<const std::byte> bytes, bool tls);

/// Length of the record that a good hello of TLS begins with, its header included (bytes).
size_t hello_bytes(std::span<const std::byte> bytes);

}  // namespace sidereal::security
