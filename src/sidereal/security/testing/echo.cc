#include "sidereal/security/testing/echo.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>

#include "sidereal/sys/posix/posix.h"

namespace sidereal::security {

namespace {

class Answer final : public grpc::ServerGenericBidiReactor {
 public:
  Answer() { StartRead(&request_); }
  void OnReadDone(bool ok) override {
    if (ok) {
      StartWriteAndFinish(&request_, {}, grpc::Status::OK);
    } else {
      Finish(grpc::Status::OK);
    }
  }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer request_;
};

class EchoService final : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Answer;
  }
};

}  // namespace

class EchoServer::Impl {
 public:
  Impl(std::shared_ptr<const Credentials> credentials, const ListenerOptions& options,
       const std::string& address) {
    auto made = Listener::create(address, std::move(credentials), options);
    EXPECT_TRUE(made.ok()) << made.status();
    listener_ = *std::move(made);
    grpc::ServerBuilder builder;
    builder.RegisterCallbackGenericService(&service_);
    listener_->attach(&builder);
    server_ = builder.BuildAndStart();
    EXPECT_NE(server_, nullptr);
    EXPECT_TRUE(listener_->start().ok());
  }
  ~Impl() {
    listener_->stop();
    server_->Shutdown(std::chrono::system_clock::now());
  }

  EchoService service_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<grpc::Server> server_;
};

EchoServer::EchoServer(std::shared_ptr<const Credentials> credentials,
                       const ListenerOptions& options, const std::string& address)
    : impl_(std::make_unique<Impl>(std::move(credentials), options, address)) {}
EchoServer::~EchoServer() = default;
Listener& EchoServer::listener() { return *impl_->listener_; }
std::string EchoServer::address() const { return impl_->listener_->address(); }

namespace {

Status say_hello_with(const std::string& address,
                      const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                      grpc::ChannelArguments arguments) {
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  grpc::GenericStub stub(grpc::CreateCustomChannel(address, credentials, arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  const grpc::Slice slice("hello");
  const grpc::ByteBuffer request(&slice, 1);
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareUnaryCall(&context, "/test.Echo/Echo", request, &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool done = false;
  EXPECT_TRUE(queue.Next(&tag, &done));
  if (status.ok()) return {};
  return base::make_status(static_cast<StatusCode>(status.error_code()), status.error_message());
}

}  // namespace

Status say_hello(const std::string& address, const Credentials& credentials) {
  grpc::ChannelArguments arguments;
  credentials.channel_arguments(&arguments);
  return say_hello_with(address, credentials.channel(), arguments);
}

Status say_hello_without_certificate(const std::string& address) {
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_verify_server_certs(false);
  options.set_check_call_host(false);
  options.set_certificate_verifier(std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
  return say_hello_with(address, grpc::experimental::TlsCredentials(options), {});
}

void send_and_wait_for_end(const std::string& address, const std::string& bytes) {
  const auto network = sys::posix::create_network();
  auto poller = network->create_poller();
  ASSERT_TRUE(poller.ok());
  auto parsed = sys::Address::parse(address);
  ASSERT_TRUE(parsed.ok());
  auto stream = network->connect(*parsed);
  ASSERT_TRUE(stream.ok()) << stream.status();
  ASSERT_TRUE((*poller)->add(**stream, 1, {.readable = false, .writable = true}).ok());
  std::array<sys::Event, 4> events;
  while (true) {
    ASSERT_GT((*poller)->wait(events, 30 * sys::kSecond), 0u);
    const Result<bool> connected = (*stream)->connected();
    ASSERT_TRUE(connected.ok()) << connected.status();
    if (*connected) break;
  }
  if (!bytes.empty()) {
    const sys::ConstIoSlice slice{reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
    static_cast<void>((*stream)->writev({&slice, 1}).ok());
  }
  ASSERT_TRUE((*poller)->update(**stream, 1, {}).ok());
  std::array<std::byte, 256> room;
  while (true) {
    ASSERT_GT((*poller)->wait(events, 30 * sys::kSecond), 0u) << "the connection stays open";
    const sys::IoSlice slice{room.data(), room.size()};
    const Result<sys::IoCount> got = (*stream)->readv({&slice, 1});
    if (!got.ok() || got->end) return;
  }
}

}  // namespace sidereal::security
