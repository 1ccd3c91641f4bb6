#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/tensor/tensor.h"
#include "sidereal/wire/frame.h"

/// Internal to transport.
namespace sidereal::transport {

/// A call or an answer that may have to be sent again, over another connection.
struct KeptMessage {
  wire::FrameHeader header;  ///< Its lengths are filled in when it is sent.
  std::vector<tensor::Tensor> tensors;
  std::vector<uint32_t> slots;
  std::vector<wire::Form> forms;
  std::string extra;   ///< Of an error: its text.
  uint64_t bytes = 0;  ///< What its owner counts for it.

  /// All but the header. `tensors` are shared, not copied.
  void assign(std::span<const tensor::Tensor> values, std::span<const uint32_t> their_slots,
              std::span<const wire::Form> their_forms, std::string_view beside);
  /// Makes it an error, for the same call.
  void assign_error(const Status& error, bool derived);
  /// Lets go of all; keeps a little memory.
  void clear();
};

/// Memory for such messages of all connections of a lane: what was given back last, which is in the
/// caches, is taken first. Thread: core-local.
class KeptMessages {
 public:
  /// An empty one.
  std::unique_ptr<KeptMessage> take();
  void give(std::unique_ptr<KeptMessage> message);

 private:
  std::vector<std::unique_ptr<KeptMessage>> spare_;
};

}  // namespace sidereal::transport
