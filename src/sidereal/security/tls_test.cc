#include "sidereal/security/tls.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <string>
#include <vector>

#include "sidereal/security/credentials.h"
#include "sidereal/security/testing/certificates.h"

namespace sidereal::security {
namespace {

/// What two ends of a connection in memory share: bytes on their way, at most `room` each way.
struct Wire {
  std::array<std::string, 2> flying;  // [i]: to end i
  std::array<std::string, 2> seen;    // all that ever went to end i
  std::array<bool, 2> gone = {};
  size_t room = 100'000;
};

class MemoryStream final : public sys::Stream {
 public:
  MemoryStream(std::shared_ptr<Wire> wire, int end) : wire_(std::move(wire)), end_(end) {}
  ~MemoryStream() override { wire_->gone[static_cast<size_t>(end_)] = true; }

  [[nodiscard]] int handle() const override { return end_; }
  Result<bool> connected() override { return true; }
  Result<sys::IoCount> readv(std::span<const sys::IoSlice> into) override {
    std::string& flying = wire_->flying[static_cast<size_t>(end_)];
    const size_t n = std::min(flying.size(), into[0].bytes);
    if (n == 0) {
      if (wire_->gone[static_cast<size_t>(1 - end_)]) return sys::IoCount{.end = true};
      return sys::IoCount{.would_block = true};
    }
    std::memcpy(into[0].data, flying.data(), n);
    flying.erase(0, n);
    return sys::IoCount{.bytes = n};
  }
  Result<sys::IoCount> writev(std::span<const sys::ConstIoSlice> from) override {
    const auto to = static_cast<size_t>(1 - end_);
    const size_t n =
        std::min(wire_->room - std::min(wire_->room, wire_->flying[to].size()), from[0].bytes);
    if (n == 0) return sys::IoCount{.would_block = true};
    const std::string_view text(reinterpret_cast<const char*>(from[0].data), n);
    wire_->flying[to].append(text);
    wire_->seen[to].append(text);
    return sys::IoCount{.bytes = n};
  }

 private:
  std::shared_ptr<Wire> wire_;
  int end_;
};

struct Ends {
  std::shared_ptr<Wire> wire = std::make_shared<Wire>();
  std::unique_ptr<sys::Stream> server, client;
  Status server_status, client_status;
  bool shaken = false;
};

std::shared_ptr<const Tls> tls_of(const SecurityOptions& options) {
  const auto credentials = Credentials::create(options);
  EXPECT_TRUE(credentials.ok()) << credentials.status();
  return Tls::create(**credentials).value();
}

std::shared_ptr<const Tls> with_secret(const std::string& secret) {
  return tls_of({.secret = secret});
}

constexpr const char* kSecret = "0123456789abcdef0123456789abcdef";

/// Both ends shake hands until both have, or one fails and goes.
Ends shake(const std::shared_ptr<const Tls>& server, const std::shared_ptr<const Tls>& client,
           const std::string& host = "127.0.0.1") {
  Ends ends;
  ends.server = server->serve(std::make_unique<MemoryStream>(ends.wire, 0)).value();
  ends.client = client->connect(std::make_unique<MemoryStream>(ends.wire, 1), host).value();
  for (int round = 0; round < 20 && !ends.shaken; ++round) {
    bool both = true;
    for (const bool is_server : {false, true}) {
      auto& end = is_server ? ends.server : ends.client;
      auto& status = is_server ? ends.server_status : ends.client_status;
      if (end == nullptr) continue;
      Result<bool> done = end->connected();
      if (done.ok() && *done) {
        // What came behind the handshake: an alert, perhaps.
        std::byte byte;
        const std::array<sys::IoSlice, 1> slice = {sys::IoSlice{&byte, 1}};
        const auto got = end->readv(slice);
        if (!got.ok()) done = got.status();
      }
      if (!done.ok()) {
        status = done.status();
        end.reset();
      }
      both = both && done.ok() && *done;
    }
    ends.shaken = both && ends.server != nullptr && ends.client != nullptr;
  }
  return ends;
}

TEST(Tls, CarriesBytesOfAnySizeBothWaysThroughNarrowStreams) {
  std::mt19937 random(3);
  for (const size_t room : {100'000, 1'000, 3}) {
    Ends ends = shake(with_secret(kSecret), with_secret(kSecret));
    ASSERT_TRUE(ends.shaken) << ends.server_status << ends.client_status;
    ends.wire->room = room;
    std::string sent(room > 10 ? 3'000'000 : 20'000, '\0');
    for (char& c : sent) c = static_cast<char>(random());
    std::string got;
    size_t at = 0;
    for (int64_t turns = 0; got.size() < sent.size() && turns < 10'000'000; ++turns) {
      // Some slices of odd sizes.
      std::vector<sys::ConstIoSlice> from;
      size_t end = at;
      for (int i = 0; i < 5 && end < sent.size(); ++i) {
        const size_t n = std::min<size_t>(sent.size() - end, random() % 50'000);
        from.push_back({reinterpret_cast<const std::byte*>(sent.data()) + end, n});
        end += n;
      }
      at += ends.client->writev(from).value().bytes;
      std::vector<std::byte> buffer(1 + random() % 70'000);
      const std::array<sys::IoSlice, 2> into = {
          sys::IoSlice{buffer.data(), buffer.size() / 2},
          sys::IoSlice{buffer.data() + buffer.size() / 2, buffer.size() - buffer.size() / 2}};
      const auto count = ends.server->readv(into);
      ASSERT_TRUE(count.ok()) << count.status();
      got.append(reinterpret_cast<const char*>(buffer.data()), count->bytes);
      EXPECT_FALSE(count->would_block && ends.server->holds_input());
    }
    EXPECT_TRUE(got == sent);
    EXPECT_EQ(ends.wire->seen[0].find(sent.substr(0, 32)), std::string::npos);
  }
}

TEST(Tls, AnotherSecretIsRefusedAndBothSidesKnowWhy) {
  const Ends ends = shake(with_secret(kSecret), with_secret("another secret of 32 bytes......"));
  EXPECT_FALSE(ends.shaken);
  EXPECT_EQ(ends.client_status.code(), StatusCode::kUnauthenticated) << ends.client_status;
  EXPECT_EQ(ends.server_status.code(), StatusCode::kUnauthenticated) << ends.server_status;
  EXPECT_NE(base::message_of(ends.client_status).find("same secret"), std::string::npos);
}

TEST(Tls, CertificatesOfOneAuthorityAreAcceptedWhereTheyNameTheHost) {
  const TempFolder folder;
  const Authority ours("ours");
  const auto one = tls_of(ours.issue(folder, "one", "127.0.0.1"));
  const auto two = tls_of(ours.issue(folder, "two", "127.0.0.2"));
  EXPECT_TRUE(shake(one, two, "127.0.0.1").shaken);
  const Ends wrong = shake(two, one, "127.0.0.1");
  EXPECT_FALSE(wrong.shaken);
  EXPECT_EQ(wrong.client_status.code(), StatusCode::kUnauthenticated) << wrong.client_status;
}

TEST(Tls, CertificatesOfAnotherAuthorityOrOutOfDateAreRefused) {
  const TempFolder folder;
  const Authority ours("ours");
  const Authority theirs("theirs");
  const auto server = tls_of(ours.issue(folder, "server", "127.0.0.1"));
  const Ends foreign = shake(server, tls_of(theirs.issue(folder, "foreign", "127.0.0.1")));
  EXPECT_FALSE(foreign.shaken);
  const Ends old = shake(server, tls_of(ours.issue(folder, "old", "127.0.0.1", -60)));
  EXPECT_FALSE(old.shaken);
  EXPECT_EQ(old.server_status.code(), StatusCode::kUnauthenticated) << old.server_status;
  EXPECT_EQ(old.client_status.code(), StatusCode::kUnauthenticated) << old.client_status;
}

TEST(Tls, PlainTextIsNotTakenForTls) {
  const auto tls = with_secret(kSecret);
  auto wire = std::make_shared<Wire>();
  const auto server = tls->serve(std::make_unique<MemoryStream>(wire, 0)).value();
  wire->flying[0] = "SD";
  EXPECT_EQ(server->connected().status().code(), StatusCode::kDataLoss);
  auto back = std::make_shared<Wire>();
  const auto client = tls->connect(std::make_unique<MemoryStream>(back, 1), "127.0.0.1").value();
  EXPECT_FALSE(client->connected().value());
  back->flying[1] = "SDRL, a frame that is not TLS";
  EXPECT_EQ(client->connected().status().code(), StatusCode::kDataLoss);
}

TEST(Tls, RecordedBytesAreOfNoUse) {
  const auto tls = with_secret(kSecret);
  Ends ends = shake(tls, tls);
  ASSERT_TRUE(ends.shaken);
  const std::string text = "push 1000 rows";
  const std::array<sys::ConstIoSlice, 1> slice = {
      sys::ConstIoSlice{reinterpret_cast<const std::byte*>(text.data()), text.size()}};
  ASSERT_EQ(ends.client->writev(slice)->bytes, text.size());
  auto replay = std::make_shared<Wire>();
  const auto server = tls->serve(std::make_unique<MemoryStream>(replay, 0)).value();
  replay->flying[0] = ends.wire->seen[0];
  Result<bool> done = false;
  for (int i = 0; i < 5 && done.ok() && !*done; ++i) done = server->connected();
  EXPECT_FALSE(done.ok() && *done);
}

TEST(Tls, ChangedBytesEndTheStream) {
  const auto tls = with_secret(kSecret);
  Ends ends = shake(tls, tls);
  ASSERT_TRUE(ends.shaken);
  const std::string text = "push 1000 rows";
  const std::array<sys::ConstIoSlice, 1> slice = {
      sys::ConstIoSlice{reinterpret_cast<const std::byte*>(text.data()), text.size()}};
  ASSERT_EQ(ends.client->writev(slice)->bytes, text.size());
  ends.wire->flying[0].back() = static_cast<char>(ends.wire->flying[0].back() ^ 1);
  std::array<std::byte, 100> buffer;
  const std::array<sys::IoSlice, 1> into = {sys::IoSlice{buffer.data(), buffer.size()}};
  EXPECT_EQ(ends.server->readv(into).status().code(), StatusCode::kUnavailable);
}

TEST(Tls, CredentialsThatProveNothingMakeNone) {
  EXPECT_EQ(Tls::create(**Credentials::create({})).status().code(),
            StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace sidereal::security
