#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/lane/lane.h"
#include "sidereal/sys/network.h"
#include "sidereal/sys/shared_stream.h"
#include "sidereal/tensor/tensor.h"
#include "sidereal/transport/budget.h"
#include "sidereal/transport/endpoint.h"
#include "sidereal/transport/outbox.h"
#include "sidereal/wire/checksum.h"
#include "sidereal/wire/frame.h"

namespace sidereal::transport {

/// Frames over one stream, both ways; what servers and clients have in common. Reads into the
/// lane's staging buffer and, for long payloads, straight into the tensors; gathers what is sent in
/// an iteration into one write, or a few where many messages were read at once; answers pings and
/// notices a silent peer. A long payload waits unread until the endpoint's budget has room for it.
/// Once it is used, a connection to a process of the same host and user goes through shared memory.
/// Thread: core-local.
class Link final : private lane::IoHandler, private lane::Flusher, private Budget::Waiter {
 public:
  /// Whoever acts on the frames. May close the link from within any callback, not destroy it.
  class Owner {
   public:
    virtual ~Owner() = default;
    /// A frame without slots, other than Ping and Pong. An error closes the link as malformed.
    virtual Status on_frame(const wire::FrameHeader& header, std::string_view meta) = 0;
    /// A Call or Reply begins. False: the payload is to be skipped. An error closes the link as
    /// malformed.
    virtual Result<bool> on_begin(const wire::FrameHeader& header) = 0;
    /// Where the payload of slot number `position`, neither dead nor of strings, goes.
    virtual Result<tensor::Tensor> allocate(const wire::FrameHeader& header, int position,
                                            const wire::SlotEntry& slot) = 0;
    /// There was no place for the message that began last: its payload will be skipped.
    virtual void on_no_place(const wire::FrameHeader& header, const Status& why) = 0;
    /// The Call or Reply that began last is complete. `extra` holds its owner's bytes.
    virtual void on_message(const wire::FrameHeader& header, std::span<const wire::SlotEntry> slots,
                            std::string_view extra, std::span<tensor::Tensor> tensors) = 0;
    /// A Call or Reply has wholly come, or was skipped; before on_message().
    virtual void on_received(const wire::FrameHeader& header) { (void)header; }
    /// Some of what waited to be sent may have left.
    virtual void on_flushed() {}
    /// The link has closed itself. The reason reads well behind "lost <peer>: ".
    virtual void on_broken(const Status& why) = 0;
  };

  /// `is_server`: tells a peer what was wrong before it is closed, and stops reading while too
  /// much waits to be sent.
  Link(Endpoint* endpoint, Owner* owner, bool is_server);
  ~Link() override;

  /// Takes over a connected stream, with the narrow limits that hold before the handshake.
  Status open(std::unique_ptr<sys::Stream> stream);
  /// The handshake is done: the endpoint's limits hold from now on.
  void set_trusted();
  /// Tries once to send what waits, then closes. The owner is not told.
  void close();
  [[nodiscard]] bool is_open() const { return stream_ != nullptr; }

  /// Sends a frame without slots; lengths in `header` are filled in.
  void send(wire::FrameHeader header, std::string_view meta = {});
  /// What a Call or Reply carries. `slots` empty: 0, 1, 2...; `forms` empty: all whole.
  struct Message {
    std::span<const tensor::Tensor> tensors;
    std::span<const uint32_t> slots;
    std::span<const wire::Form> forms;
    std::string_view extra;
  };
  /// Sends a Call or Reply, and fills in the rest of `header`; with wire::kNumbered its order too.
  /// kInvalidArgument when it is larger than a peer with the same options accepts; then nothing is
  /// sent.
  Status send(wire::FrameHeader* header, const Message& message);
  /// The same, or an Error, as it is kept.
  Status send(const KeptMessage& message);
  /// Sends an Error for `call_id`. A long text is cut.
  void send_error(uint64_t call_id, const Status& error, bool derived = false);

  /// What is left of the payload being received is to be skipped.
  void skip_payload();
  /// Bytes waiting to be sent.
  [[nodiscard]] size_t send_bytes() const { return outbox_.bytes(); }
  /// Bytes received and sent since this object was made.
  [[nodiscard]] int64_t bytes_in() const { return bytes_in_; }
  [[nodiscard]] int64_t bytes_out() const { return bytes_out_; }

 private:
  // What follows next in the stream; kRoom: a payload that waits for the budget.
  enum class Expect { kHead, kPayload, kRoom };

  void on_io(const sys::Event& event) override;
  bool look() override;
  void on_room() override;
  void flush() override;
  bool make_ready();
  Status write_out();
  void copy_payload(const tensor::Tensor& value, wire::Form form, uint64_t bytes, std::byte* out,
                    bool summed);
  void append_payload(const tensor::Tensor& value, wire::Form form, uint64_t bytes, bool summed);
  void append_strings(const tensor::Tensor& value, uint64_t bytes, bool summed);
  void count_outbox();

  void read();
  size_t read_slices(std::span<sys::IoSlice> slices, size_t* direct_bytes, size_t* carried);
  size_t window() const;
  void consume(std::string_view bytes);
  void consume_carried();
  void give_back_room();
  size_t consume_head(std::string_view bytes);
  size_t consume_payload(std::string_view bytes);
  Status begin_message(std::string_view meta);
  Status place_message();
  Status place(size_t position);
  Status finish_tensors();
  Status finish_tensor(size_t position);
  void resume();
  void dispatch(std::string_view meta);
  void advance_payload(size_t bytes);
  void skip_empty_slots();
  void finish_message();
  bool payload_done() const;
  /// Nothing is read at present.
  [[nodiscard]] bool held() const { return paused_ || expect_ == Expect::kRoom; }
  uint64_t payload_left() const { return incoming_.header.payload_bytes - payload_at_; }

  // Memory that both ends share (link_share.cc).
  void consider_sharing();
  [[nodiscard]] bool takes_ring(uint64_t ring_bytes) const;
  void count_shared(uint64_t bytes);
  Status on_sharing(const wire::FrameHeader& header, std::string_view meta);
  Status on_offer(std::string_view meta);
  Status begin_sharing(std::unique_ptr<sys::SharedMemory> memory, bool offered);
  Status switch_input();
  size_t slices_before_switch(std::span<sys::ConstIoSlice> slices, size_t count) const;
  Status try_switch_output(size_t sent);
  void trim_later();
  void end_sharing();

  void update_interest();
  void update_pause();
  void tick();
  bool moves_on(int64_t now, bool stalled);
  void malformed(const Status& why);
  void fail(const Status& why);
  void shut();

  Endpoint* const endpoint_;
  Owner* const owner_;
  const bool is_server_;
  std::unique_ptr<sys::Stream> stream_;
  wire::Limits limits_;
  uint64_t epoch_ = 0;  // changes when the link closes: callbacks may close it

  // Receiving.
  struct Incoming {
    wire::FrameHeader header;
    wire::Checksums sums;
    std::unique_ptr<MessageParts> parts;  // from begin_message() to finish_message()
  };
  Incoming incoming_;
  Expect expect_ = Expect::kHead;
  bool ready_ = false;  // the stream has connected
  bool skip_ = false;
  uint64_t room_ = 0;             // taken from the budget for this message
  bool has_room_ = false;         // the budget has called
  size_t slot_at_ = 0;            // slot whose payload comes next
  uint64_t offset_ = 0;           // into that slot's padded payload
  uint64_t payload_at_ = 0;       // bytes of the whole payload seen
  std::vector<std::byte> carry_;  // the beginning of a head that is not complete
  size_t head_bytes_ = 0;         // size of that head when known
  size_t window_;
  std::byte padding_[wire::kPayloadAlign];
  bool reading_ = false;
  int64_t bytes_in_ = 0;
  int64_t frames_in_ = 0;  // heads, and ends of payloads
  int64_t last_life_ = 0;
  int64_t asked_at_ = 0;  // when a ping without an answer was sent; 0: none

  // Sending.
  Outbox outbox_;
  size_t counted_ = 0;  // bytes of outbox_ that the endpoint knows of
  bool trusted_ = false;
  int64_t bytes_out_ = 0;
  bool wants_write_ = false;
  bool paused_ = false;
  bool trims_ = false;  // trim_timer_ runs
  sys::Interest interest_;

  // Memory that both ends share.
  sys::SharedStream* shared_ = nullptr;         // stream_, when there is some
  std::unique_ptr<sys::SharedMemory> offered_;  // until the peer has answered
  uint64_t counted_shared_ = 0;                 // bytes that the endpoint knows of
  bool may_offer_ = false;
  bool was_offered_ = false;
  bool input_switched_ = false;
  bool switches_output_ = false;  // once before_switch_ bytes have left
  size_t before_switch_ = 0;
  int64_t trimmed_bytes_ = 0;
  int64_t opened_bytes_ = 0;  // bytes_in_ and bytes_out_ when the stream was opened
  lane::TimerId trim_timer_;

  // Liveness.
  lane::TimerId timer_;
  int64_t tick_ns_ = 0;
  int64_t last_tick_ = 0;
  // When the frame that is being received was last seen to move on, and what had come then.
  int64_t moved_ns_ = 0;
  int64_t moved_bytes_ = 0;
  int64_t moved_frames_ = 0;
};

}  // namespace sidereal::transport
