#include "sidereal/sys/posix/connections.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "sidereal/sys/posix/posix.h"

namespace sidereal::sys::posix {
namespace {

TEST(Connections, HostsAreBytes) {
  EXPECT_EQ(host_bytes("127.0.0.1"), std::string("\x7f\0\0\1", 4));
  EXPECT_EQ(host_bytes("::1"), std::string(15, '\0') + '\1');
  EXPECT_EQ(host_bytes("localhost"), "");
  EXPECT_EQ(host_bytes(""), "");
  EXPECT_EQ(peer_of(-1), PeerName());
}

/// Both ends of a connection of this process.
class Pair {
 public:
  Pair() {
    auto poller = network_->create_poller();
    listener_ = *network_->listen({"127.0.0.1", 0});
    far_ = *network_->connect(listener_->address());
    EXPECT_TRUE((*poller)->add(*listener_, 1, {}).ok());
    std::array<Event, 1> events;
    EXPECT_GT((*poller)->wait(events, 30 * kSecond), 0u);
    near_ = *listener_->accept();
    (*poller)->remove(*listener_);
    EXPECT_TRUE(*far_->connected());
  }

  [[nodiscard]] uint16_t port() const { return listener_->address().port; }
  [[nodiscard]] const Stream& near() const { return *near_; }
  void send(std::string_view text) const {
    const ConstIoSlice slice{reinterpret_cast<const std::byte*>(text.data()), text.size()};
    EXPECT_TRUE(far_->writev({&slice, 1}).ok());
  }
  /// What can be read at the near end now; -1 for an end.
  [[nodiscard]] int64_t receive() const {
    std::array<std::byte, 100> room;
    const IoSlice slice{room.data(), room.size()};
    const Result<IoCount> got = near_->readv({&slice, 1});
    return got.ok() && !got->end ? static_cast<int64_t>(got->bytes) : -1;
  }

 private:
  std::unique_ptr<Network> network_ = create_network();
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Stream> far_;
  std::unique_ptr<Stream> near_;
};

TEST(Connections, AResetOneForgetsWhatHasArrivedAndOthersGoOn) {
  const Pair ended;
  const Pair other;
  ended.send("calls");
  other.send("calls");
  reset_connections({peer_of(ended.near().handle())}, other.port());
  const PeerName peer = peer_of(ended.near().handle());
  EXPECT_NE(peer, PeerName()) << "another port";
  reset_connections({peer}, ended.port());
  EXPECT_EQ(ended.receive(), -1);
  EXPECT_EQ(other.receive(), 5);
}

}  // namespace
}  // namespace sidereal::sys::posix
