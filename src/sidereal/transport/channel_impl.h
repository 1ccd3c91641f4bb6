#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/transport/channel.h"
#include "sidereal/transport/link.h"

/// The inside of Channel. Internal to transport.
namespace sidereal::transport {

inline constexpr int64_t kRetryFirstNs = 5 * sys::kMillisecond;

inline double seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

/// What is known to both the lane and whoever answers a look-up.
struct LookUp {
  std::mutex mutex;
  lane::Lane* lane = nullptr;  // nullptr: nobody wants the answer any more
  bool answered = false;       // The lane has not come to the answer yet. Both under the mutex.
};

class Channel::Impl final : public Link::Owner, public lane::IoHandler, public lane::StopHook {
 public:
  Impl(Endpoint* endpoint, Peer peer, const Resume& resume)
      : endpoint_(endpoint), peer_(std::move(peer)), resume_(resume), link_(endpoint, this, false) {
    lane()->add_stop_hook(this);
  }
  ~Impl() override {
    close();
    lane()->remove_stop_hook(this);
  }

  void connect(int64_t deadline_ns, base::Function<void(const Status&)> done);
  void keep_connected(base::Function<void(const Status&)> hear);
  Result<uint64_t> call(const CallOptions& what, std::span<const tensor::Tensor> feeds,
                        CallSink* sink);
  bool cancel(uint64_t call_id);
  void close();
  void give_up(const Status& why);

  [[nodiscard]] bool connected() const { return state_ == State::kConnected; }
  [[nodiscard]] bool accepts_calls() const { return connected() || resuming_; }
  [[nodiscard]] int64_t resumed() const { return resumed_; }
  [[nodiscard]] int pending() const { return pending_count_; }
  [[nodiscard]] const Peer& peer() const { return peer_; }
  [[nodiscard]] const Link& link() const { return link_; }
  [[nodiscard]] const wire::HelloAck& ack() const { return ack_; }
  void on_break(base::Function<void(const Status&)> hook) { break_hook_ = std::move(hook); }
  void on_room(base::Function<void()> hook) { room_hook_ = std::move(hook); }

 private:
  enum class State { kIdle, kConnecting, kShaking, kConnected };

  struct Pending {
    CallSink* sink = nullptr;  // nullptr: free
    uint32_t generation = 1;
    int64_t deadline = 0;
    int64_t started = 0;
    /// With resumes(): what is sent again. Its number is 0, and its bytes count as waiting, until
    /// it was sent.
    std::unique_ptr<KeptMessage> saved;
  };

  [[nodiscard]] lane::Lane* lane() const { return endpoint_->lane(); }
  /// "/job:ps/task:0 at 127.0.0.1:2222".
  [[nodiscard]] std::string peer_text() const {
    return fmt::format("{} at {}", peer_.task, peer_.address.to_string());
  }

  // Connecting.
  /// Gives up connecting, unless the lane was away when the deadline came, or does not come to what
  /// it was told.
  void miss_connect_deadline();
  void await_look_up();
  [[nodiscard]] bool has_look_up_answer() const;
  void attempt();
  void look_up();
  void drop_look_up();
  void dial(const sys::Address& number);
  void on_io(const sys::Event& event) override;
  void on_lane_stop() override { close(); }
  void say_hello();
  void retry(const std::string& why);
  void retry_after(int64_t pause_ns);
  void refused(const Status& why);
  void drop_stream();
  void stop_connecting();
  void finish_connect(const Status& outcome);
  Status shaken(std::string_view meta);

  // Calls that outlive a connection.
  [[nodiscard]] bool resumes() const {
    return (resume_.client_high != 0 || resume_.client_low != 0) &&
           endpoint_->options().resume_ms > 0;
  }
  void lose(const Status& why);
  void give_up_resuming();
  void end_resuming();
  void resumed_by(uint64_t earlier_incarnation);
  [[nodiscard]] bool comes_through();
  [[nodiscard]] std::vector<uint64_t> sent_in_order() const;
  void restarted(bool was_resuming);
  void send_cancels();
  [[nodiscard]] KeptMessage& saved(uint64_t call_id) const {
    return *calls_[static_cast<uint32_t>(call_id)].saved;
  }
  Status send_saved(uint64_t call_id);
  void send_waiting();
  bool note_given_up(uint64_t call_id);
  Status save(const wire::FrameHeader& header, std::span<const tensor::Tensor> feeds,
              const CallOptions& what);
  void drop_saved(uint64_t call_id);
  Status check_answer(const wire::FrameHeader& header) const;
  void note_answer(const wire::FrameHeader& header);
  void confirm();

  // Link::Owner.
  Status on_frame(const wire::FrameHeader& header, std::string_view meta) override;
  Result<bool> on_begin(const wire::FrameHeader& header) override;
  Result<tensor::Tensor> allocate(const wire::FrameHeader& header, int position,
                                  const wire::SlotEntry& slot) override;
  void on_no_place(const wire::FrameHeader& header, const Status& why) override;
  void on_message(const wire::FrameHeader& header, std::span<const wire::SlotEntry> slots,
                  std::string_view extra, std::span<tensor::Tensor> tensors) override;
  void on_received(const wire::FrameHeader& header) override;
  void on_flushed() override;
  void on_broken(const Status& why) override;
  void lost(const Status& why);
  void gone(const Status& why);

  // Pending calls.
  Pending* find(uint64_t call_id);
  [[nodiscard]] uint64_t id_of(uint32_t at) const {
    return (uint64_t{calls_[at].generation} << 32) | at;
  }
  void say_aside(uint64_t call_id, const Aside& aside);
  void tell_cancelled(uint64_t call_id);
  void complete(uint64_t call_id, const Status& status, std::span<tensor::Tensor> fetches = {});
  void fail_all(const Status& why);
  void watch_deadline(int64_t deadline);
  void expire();
  [[nodiscard]] Status expired_status(const Pending& call) const;

  Endpoint* endpoint_;
  Peer peer_;
  const Resume resume_;
  Link link_;
  State state_ = State::kIdle;
  wire::HelloAck ack_;
  base::Function<void(const Status&)> break_hook_;
  base::Function<void()> room_hook_;
  bool wants_room_ = false;

  std::unique_ptr<sys::Stream> stream_;  // while connecting
  sys::Interest watched_;                // what it is watched for
  std::shared_ptr<LookUp> look_up_;      // while the name service is asked
  base::Function<void(const Status&)> connect_done_;
  base::Function<void(const Status&)> hear_;  // keep_connected()
  bool kept_ = false;
  uint64_t tries_ = 0;
  int64_t connect_started_ = 0;
  int64_t connect_deadline_ = 0;
  int64_t connect_patience_ = 0;  // From its start to its deadline.
  int times_away_ = 0;            // When it should have been given up.
  bool was_held_up_ = false;      // The deadline passed before the lane came to a look-up's answer.
  int64_t retry_ns_ = 0;
  std::string last_failure_;
  lane::TimerId retry_timer_;
  lane::TimerId try_timer_;  // while stream_ is there
  lane::TimerId connect_timer_;

  std::vector<Pending> calls_;
  std::vector<uint32_t> free_;
  int pending_count_ = 0;
  uint64_t receiving_ = 0;  // call whose payload is being read
  lane::TimerId deadline_timer_;
  int64_t timer_deadline_ = INT64_MAX;

  // With resumes().
  std::deque<uint64_t> waiting_;    // calls to be sent over this connection, or the next one
  uint64_t waiting_bytes_ = 0;      // of those that have never been sent
  std::vector<uint64_t> given_up_;  // calls that ended without an answer: the peer may run them
  bool resuming_ = false;
  uint64_t session_ = 0;  // that the peer knows this channel by
  uint32_t attempt_ = 0;
  uint64_t number_ = 0;     // of the last call that was sent
  uint64_t received_ = 0;   // number of the last answer that has come
  uint64_t confirmed_ = 0;  // and that the peer was told of
  uint64_t unconfirmed_bytes_ = 0;
  int64_t resumed_ = 0;
  Status lost_why_;
  bool is_inside_ = false;      // An answer has begun to come, and has not wholly come.
  uint64_t answers_ = 0;        // That have wholly come.
  uint64_t known_seen_ = 0;     // At the last handshake: what the peer had seen,
  uint64_t known_answers_ = 0;  // and what had come from it.
  int64_t lost_ns_ = 0;
  int64_t stuck_ns_ = 0;  // Since when connections come and go and bring nothing; 0: they do not.
  lane::TimerId resume_timer_;
  lane::TimerId confirm_timer_;
  bool confirm_later_ = false;
};

}  // namespace sidereal::transport
