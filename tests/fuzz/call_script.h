#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace google::protobuf {
class MethodDescriptor;
}
namespace grpc {
class Channel;
}

/// Inputs of fuzzers that make calls: little scripts of what a client does, with bodies that may be
/// any bytes.
namespace sidereal::fuzz {

/// One thing a client does. In bytes: kind and flags, `target`, two bytes of the body's length (the
/// low one first), the body.
struct Action {
  enum Kind : uint8_t {
    kOpen,       ///< A call of method `target`; the body, if any, is its first message.
    kWrite,      ///< The body as the next message of call `target`.
    kHalfClose,  ///< Says that call `target` gets no more.
    kCancel,     ///< Hangs up.
    kAwait,      ///< Waits a moment for a reply or, half closed, for the end.
    kKinds,
  };
  Kind kind = kOpen;
  bool awaits = false;  ///< As kAwait, afterwards.
  bool deaf = false;    ///< kOpen: replies of a stream are not read.
  uint8_t target = 0;   ///< Number of a method or, by the order in which they were opened, a call.
  std::string body = {};
};

/// Every string of bytes is a script.
std::vector<Action> parse_script(std::string_view bytes);
std::string to_bytes(const std::vector<Action>& script);

/// A method that scripts can call.
struct Method {
  std::shared_ptr<grpc::Channel> channel;
  const google::protobuf::MethodDescriptor* type = nullptr;
  bool answers_late = false;  ///< One request and one reply that does not come soon.
};

/// The methods of a service, by its full name, as they stand in its file.
void add_methods(const std::shared_ptr<grpc::Channel>& channel, const std::string& service,
                 std::vector<Method>* out);

/// What a call of a script came to.
struct Outcome {
  const google::protobuf::MethodDescriptor* type = nullptr;
  std::vector<std::string> replies = {};
  int code = 0;  ///< Of gRPC; of calls that the script left open: CANCELLED.
};

/// Runs scripts. Numbers that are known only then stand in bodies as eight bytes, a word and a
/// digit, such as "SESSION0": they are replaced wherever they occur.
/// Thread: one at a time.
class ScriptRunner {
 public:
  using Marks = std::map<std::string, uint64_t>;
  /// Told each reply when it comes: puts what later bodies may name into the marks.
  using Learn = std::function<void(const Outcome& call, Marks* marks)>;
  /// What is sent in the place of `body`.
  using Adapt = std::function<std::string(const google::protobuf::MethodDescriptor& method,
                                          std::string body)>;

  explicit ScriptRunner(std::vector<Method> methods, Learn learn = nullptr, Adapt adapt = nullptr);
  ~ScriptRunner();

  /// Runs a script and ends all its calls. `marks` has what is known before. It is an SR_CHECK that
  /// calls with one request and one reply end, and that all others end when they are cancelled.
  /// `moment`: how long something is waited for that may not come.
  std::vector<Outcome> run(const std::vector<Action>& script, Marks* marks,
                           std::chrono::milliseconds moment);
  [[nodiscard]] const std::vector<Method>& methods() const { return methods_; }

 private:
  class Impl;
  std::vector<Method> methods_;
  std::unique_ptr<Impl> impl_;
};

/// `bytes` with one thing changed: an action, or something in its body. `change` changes bytes.
std::string change_script(std::string_view bytes, size_t max, uint32_t seed,
                          const std::vector<Method>& methods,
                          const std::function<std::string(std::string, size_t)>& change);

/// The beginning of one script, and the end of another.
std::string cross_scripts(std::string_view a, std::string_view b, size_t max, uint32_t seed);

}  // namespace sidereal::fuzz
