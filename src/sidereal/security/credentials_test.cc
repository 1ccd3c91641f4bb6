#include "sidereal/security/credentials.h"

#include <gtest/gtest.h>

#include "sidereal/security/channel.h"
#include "sidereal/security/testing/certificates.h"
#include "sidereal/security/testing/echo.h"

namespace sidereal::security {
namespace {

const std::string kSecret = "a secret for the tests, 32 bytes";

std::shared_ptr<const Credentials> make(const SecurityOptions& options) {
  auto made = Credentials::create(options);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

std::string message_of(const SecurityOptions& options, StatusCode code) {
  const auto made = Credentials::create(options);
  EXPECT_EQ(made.status().code(), code) << made.status();
  return base::message_of(made.status());
}

TEST(Credentials, WhoKnowsTheSecretIsServed) {
  const EchoServer server(make({.secret = kSecret}));
  const auto client = make({.secret = kSecret});
  EXPECT_STREQ(client->kind(), "secret");
  EXPECT_TRUE(say_hello(server.address(), *client).ok());
}

TEST(Credentials, ASecretIsTheSameFromAFileThatEndsInANewline) {
  const TempFolder folder;
  const EchoServer server(make({.secret_file = folder.write("secret", kSecret + "\n")}));
  EXPECT_TRUE(say_hello(server.address(), *make({.secret = kSecret})).ok());
}

TEST(Credentials, WhoHasAnotherSecretIsToldSoAndCounted) {
  const auto credentials = make({.secret = kSecret});
  EchoServer server(credentials);
  const Status refused = say_hello(server.address(), *make({.secret = kSecret + "!"}));
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable) << refused;
  EXPECT_NE(base::message_of(refused).find("another cluster secret"), std::string::npos) << refused;
  EXPECT_TRUE(say_hello(server.address(), *make({.secret = kSecret})).ok());
}

TEST(Credentials, WhoComesWithoutTlsIsRefused) {
  const EchoServer server(make({.secret = kSecret}));
  EXPECT_EQ(say_hello(server.address(), *make({})).code(), StatusCode::kUnavailable);
}

TEST(Credentials, AServerWithoutTlsIsRefusedByWhoHasASecret) {
  const EchoServer server(make({}));
  EXPECT_FALSE(say_hello(server.address(), *make({.secret = kSecret})).ok());
  EXPECT_TRUE(say_hello(server.address(), *make({})).ok());
}

TEST(Credentials, ThatTheyAreRefusedIsFoundOut) {
  const EchoServer open(make({}));
  const EchoServer guarded(make({.secret = kSecret}));
  const auto check = [](const EchoServer& server, const SecurityOptions& options) {
    return check_credentials(server.address(), make(options).get(), std::chrono::seconds(10));
  };
  EXPECT_EQ(check(guarded, {}).code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(check(guarded, {.secret = kSecret + "!"}).code(), StatusCode::kUnauthenticated);
  EXPECT_TRUE(check(guarded, {.secret = kSecret}).ok());
  EXPECT_TRUE(check(open, {}).ok());
  EXPECT_EQ(check_credentials(guarded.address(), nullptr, std::chrono::seconds(10)).code(),
            StatusCode::kUnauthenticated);
  // A port that is closed says nothing about credentials.
  EXPECT_TRUE(check_credentials("127.0.0.1:1", nullptr, std::chrono::seconds(10)).ok());
}

TEST(Credentials, CertificatesOfOneAuthorityServeOneAnother) {
  const TempFolder folder;
  const Authority authority("authority of the test");
  const SecurityOptions options = authority.issue(folder, "task", "127.0.0.1");
  const EchoServer server(make(options));
  const auto client = make(options);
  EXPECT_STREQ(client->kind(), "tls");
  const Status served = say_hello(server.address(), *client);
  EXPECT_TRUE(served.ok()) << served;
}

TEST(Credentials, ACertificateOfAnotherAuthorityIsRefused) {
  const TempFolder folder;
  const Authority ours("authority of the test");
  const Authority theirs("authority of unauthenticated peers");
  const SecurityOptions options = ours.issue(folder, "task", "127.0.0.1");
  SecurityOptions nonmember = theirs.issue(folder, "nonmember", "127.0.0.1");
  nonmember.ca_file = options.ca_file;  // It trusts the server; the server does not trust it.
  const EchoServer server(make(options));
  EXPECT_FALSE(say_hello(server.address(), *make(nonmember)).ok());
  EXPECT_TRUE(say_hello(server.address(), *make(options)).ok());
}

TEST(Credentials, AServerWhoseCertificateNamesAnotherHostIsRefused) {
  const TempFolder folder;
  const Authority authority("authority of the test");
  const EchoServer server(make(authority.issue(folder, "server", "10.1.2.3")));
  const auto client = make(authority.issue(folder, "client", "127.0.0.1"));
  EXPECT_FALSE(say_hello(server.address(), *client).ok());
}

TEST(Credentials, ACertificateWhoseTimeIsOverIsRefused) {
  const TempFolder folder;
  const Authority authority("authority of the test");
  const EchoServer server(make(authority.issue(folder, "server", "127.0.0.1")));
  const auto late = make(authority.issue(folder, "late", "127.0.0.1", -60));
  EXPECT_FALSE(say_hello(server.address(), *late).ok());
}

TEST(Credentials, OptionsThatContradictOneAnotherAreRefused) {
  constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;
  message_of({.secret = kSecret, .secret_file = "x"}, kInvalid);
  message_of({.secret = kSecret, .insecure = true}, kInvalid);
  message_of({.certificate_file = "c"}, kInvalid);
  message_of({.secret = kSecret, .certificate_file = "c", .key_file = "k", .ca_file = "a"},
             kInvalid);
}

TEST(Credentials, FilesThatAreNotThereOrHoldSomethingElseAreNamed) {
  const TempFolder folder;
  const std::string missing = folder.path("missing");
  EXPECT_NE(message_of({.secret_file = missing}, StatusCode::kNotFound).find(missing),
            std::string::npos);
  const std::string text = folder.write("text", "no certificate");
  const std::string message = message_of(
      {.certificate_file = text, .key_file = text, .ca_file = text}, StatusCode::kInvalidArgument);
  EXPECT_NE(message.find(text), std::string::npos);
  EXPECT_EQ(message.find("no certificate\n"), std::string::npos);
}

TEST(Credentials, NoErrorShowsASecret) {
  const TempFolder folder;
  const std::string file = folder.write("secret", "too short");
  EXPECT_EQ(message_of({.secret = "too short"}, StatusCode::kInvalidArgument).find("too short"),
            std::string::npos);
  const std::string message = message_of({.secret_file = file}, StatusCode::kInvalidArgument);
  EXPECT_EQ(message.find("too short"), std::string::npos);
  EXPECT_NE(message.find(file), std::string::npos);
}

TEST(CheckListen, LoopbackNeedsNothing) {
  const auto none = make({});
  EXPECT_TRUE(check_listen("127.0.0.1:0", *none).ok());
  EXPECT_TRUE(check_listen("[::1]:2222", *none).ok());
  EXPECT_TRUE(check_listen("localhost:2222", *none).ok());
}

TEST(CheckListen, OtherAddressesNeedASecretOrCertificatesOrTheWordInsecure) {
  for (const char* address : {"0.0.0.0:0", "[::]:0", "10.1.2.3:2222"}) {
    const Status refused = check_listen(address, *make({}));
    EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition) << address;
    EXPECT_NE(base::message_of(refused).find("secret"), std::string::npos);
    EXPECT_TRUE(check_listen(address, *make({.secret = kSecret})).ok());
    EXPECT_TRUE(check_listen(address, *make({.insecure = true})).ok());
  }
}

}  // namespace
}  // namespace sidereal::security
