#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sidereal/ir/builder.h"
#include "sidereal/ops/ops.h"
#include "sidereal/passes/testing/lines.h"

namespace sidereal::passes {

/// A graph whose nodes are put on devices by hand, and what one pass makes of it.
class OnDevices : public testing::Test {
 protected:
  using Pass = Result<StepGraph> (*)(const StepGraph&, const ir::OpRegistry&);

  explicit OnDevices(Pass pass) : pass_(pass) { ops::register_all(&registry_); }

  ir::Output on(const std::string& device, ir::Output value) {
    graph_.mutable_node(value.node).device = device;
    return value;
  }
  ir::Output ids(const char* name, const char* device = "/w", ir::DType dtype = ir::DType::kInt64) {
    return on(device, ops::placeholder(b_, name, dtype, ir::Shape{-1, 3}));
  }
  std::vector<std::string> lines(const std::vector<ir::Output>& fetches,
                                 const std::vector<ir::NodeId>& targets = {}) {
    EXPECT_TRUE(b_.status().ok()) << base::message_of(b_.status());
    expanded_ = pass_({graph_, fetches, targets}, registry_);
    return lines_of(expanded_, registry_);
  }
  [[nodiscard]] std::string device_of(const char* name) const {
    const ir::Node* node = expanded_->graph.find(name);
    return node == nullptr ? "no node" : node->device;
  }

  ir::OpRegistry registry_;
  ir::Graph graph_;
  ir::Builder b_{&graph_, &registry_};
  Result<StepGraph> expanded_ = base::internal("nothing was expanded");

 private:
  Pass pass_;
};

}  // namespace sidereal::passes
