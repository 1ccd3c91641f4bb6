#include "sidereal/program/program.h"

#include <algorithm>
#include <array>
#include <utility>

#include "sidereal/base/strings.h"
#include "sidereal/ir/text.h"
#include "sidereal/partition/lanes.h"
#include "sidereal/partition/waiting.h"

namespace sidereal::program {
namespace {

class Printer {
 public:
  Printer(const Program& program, std::string title) : program_(program), out_(std::move(title)) {}

  std::string run() {
    out_ += fmt::format(": {} instructions, {} slots, {} buffers, {} calls{}\n",
                        program_.instructions.size(), program_.slots.size(), program_.num_buffers,
                        program_.calls.size(), program_.parks ? ", parks what waits" : "");
    for (size_t i = 0; i < program_.feeds.size(); ++i) {
      out_ += fmt::format("feed {} \"{}\"\n", written(program_.feeds[i]), program_.feed_names[i]);
    }
    for (const Instruction& instruction : program_.instructions) print(instruction);
    for (size_t i = 0; i < program_.fetches.size(); ++i) {
      out_ += fmt::format("fetch %{} \"{}\"\n", program_.fetches[i], program_.fetch_names[i]);
    }
    return std::move(out_);
  }

 private:
  /// "%4:b1 float32[?,8]": slot, buffer and spec.
  [[nodiscard]] std::string written(int32_t slot) const {
    const SlotInfo& info = program_.slots[slot];
    const std::string buffer = info.buffer < 0 ? "" : fmt::format(":b{}", info.buffer);
    return fmt::format("%{}{} {}{}", slot, buffer, tensor::name_of(info.dtype),
                       info.shape.to_string());
  }

  [[nodiscard]] std::string all_written(const std::vector<int32_t>& slots) const {
    std::vector<std::string> texts;
    for (const int32_t slot : slots) texts.push_back(written(slot));
    return base::join(texts, ", ");
  }

  static std::string all_read(const std::vector<int32_t>& slots) {
    std::vector<std::string> texts;
    for (const int32_t slot : slots) texts.push_back(fmt::format("%{}", slot));
    return base::join(texts, ", ");
  }

  void print(const Instruction& instruction) {
    std::string line;
    if (instruction.kind == InstructionKind::kCompute ||
        instruction.kind == InstructionKind::kControl) {
      line = fmt::format("{} = {}({})", all_written(instruction.outputs), instruction.op,
                         all_read(instruction.inputs));
      if (instruction.outputs.empty()) line = line.substr(3);
      const std::string attrs = ir::to_text(instruction.attrs);
      if (!attrs.empty()) line += " " + attrs;
      if (!instruction.bodies.empty()) {
        line += fmt::format(" bodies({})", fmt::join(instruction.bodies, ", "));
      }
      line += fmt::format(" \"{}\"", instruction.name);
    } else {
      const CallSpec& call = program_.calls[instruction.call];
      line = instruction.kind == InstructionKind::kCallStart
                 ? fmt::format("start call {} {}{} ({})", instruction.call, call.device,
                               call.async_push ? " asynchronous"
                               : call.ahead    ? " ahead"
                                               : "",
                               all_read(call.feeds))
                 : fmt::format("wait call {} -> ({})", instruction.call, all_written(call.fetches));
    }
    if (!instruction.after.empty()) {
      line += fmt::format(" after({})", fmt::join(instruction.after, ", "));
    }
    if (!instruction.releases.empty()) line += " release " + all_read(instruction.releases);
    out_ += line + "\n";
  }

  const Program& program_;
  std::string out_;
};

}  // namespace

std::string to_text(const Program& program) {
  std::string out = Printer(program, "program").run();
  for (size_t k = 0; k < program.bodies.size(); ++k) {
    out += Printer(program.bodies[k], fmt::format("body {}", k)).run();
  }
  return out;
}

int lane_of(const CallSpec& call) { return partition::lane_of(call.device); }

std::vector<const CallSpec*> all_calls(const Program& program) {
  std::vector<const CallSpec*> out;
  const auto add = [&](const Program& part) {
    for (const CallSpec& call : part.calls) out.push_back(&call);
  };
  add(program);
  for (const Program& body : program.bodies) add(body);
  return out;
}

bool may_wait(const Program& whole, const Program& part) {
  std::vector<bool> bodies;  // A body runs those of lower index only.
  const auto any = [&bodies](const Program& one) {
    const auto waits = [&](const Instruction& instruction) {
      return partition::may_wait(instruction.op) ||
             (instruction.call >= 0 && one.calls[instruction.call].waits) ||
             std::any_of(instruction.bodies.begin(), instruction.bodies.end(),
                         [&](int32_t body) { return bodies[body]; });
    };
    return std::any_of(one.instructions.begin(), one.instructions.end(), waits);
  };
  for (const Program& body : whole.bodies) bodies.push_back(any(body));
  return any(part);
}

std::span<const std::string_view> body_attrs(std::string_view op) {
  static constexpr std::array<std::string_view, 1> kFunctionCall = {"function"};
  static constexpr std::array<std::string_view, 2> kIf = {"then_branch", "else_branch"};
  static constexpr std::array<std::string_view, 2> kWhile = {"cond", "body"};
  static constexpr std::array<std::string_view, 1> kScan = {"body"};
  if (op == "FunctionCall") return kFunctionCall;
  if (op == "If") return kIf;
  if (op == "While") return kWhile;
  if (op == "Scan") return kScan;
  return {};
}

}  // namespace sidereal::program
