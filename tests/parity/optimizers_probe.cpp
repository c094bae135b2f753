#include "tests/parity/optimizers_probe.h"

#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <chrono>
#include <optional>
#include <set>

namespace trainrun {
namespace {

using nlohmann::json;

GroupRates rates_from(const json& group) {
  const json momentum = group.value("momentum", json());
  return {group.at("lr").get<double>(),
          momentum.is_null() ? std::nullopt : std::optional<double>(momentum.get<double>())};
}

std::set<int64_t> numbers(const Request& request, const char* key) {
  return request.has(key) ? request[key].get<std::set<int64_t>>() : std::set<int64_t>();
}

/// The loss that optimizers with a closure are tried on: convex, least at `goals`. Leaves its gradients in
/// `parameters`.
at::Tensor distance(const NamedTensors& parameters, const TensorMap& goals) {
  at::Tensor loss = at::zeros({}, parameters[0].second.options());
  for (const auto& [name, parameter] : parameters) {
    parameter.mutable_grad().reset();
    const at::Tensor off = parameter - goals.at(name);
    loss = loss + ((off.square() * (goals.at(name).abs() + 0.5)).sum() + 0.1 * off.pow(4).sum());
  }
  loss.backward();
  return loss.detach();
}

}  // namespace

json run_optimizer(Request& request) {
  const auto component = request.spec<Component<OptimizerKind>>();
  NamedTensors parameters;
  for (const auto& [name, tensor] : request.tensors("parameter")) {
    parameters.emplace_back(name, tensor.clone().set_requires_grad(true));
  }
  const auto make = [&] { return component.build(group_parameters(component, parameters)); };
  const std::set<int64_t> reload_before = numbers(request, "reload_before");
  const TensorMap goals = request.tensors("goal");
  auto optimizer = make();
  for (int64_t step = 0; step < request.number("steps"); ++step) {
    if (reload_before.contains(step)) {
      TensorMap saved;
      for (const auto& [name, tensor] : optimizer->state()) saved[name] = tensor.to(at::kCPU, false, true);
      optimizer = make();
      optimizer->load_state(saved);
    }
    const TensorMap gradients = request.tensors(std::to_string(step));
    for (const auto& [name, tensor] : parameters) {
      tensor.mutable_grad() = gradients.contains(name) ? gradients.at(name) : at::Tensor();
    }
    StepContext context = {optimizer->initial_rates()};
    for (size_t group = 0; request.has("rates") && group < context.rates.size(); ++group) {
      context.rates[group] = rates_from(request["rates"].at(step).at(group));
    }
    context.closure = [&] {
      if (goals.empty()) throw Error("the probe has no loss to compute anew");
      return distance(parameters, goals);
    };
    optimizer->step(context);
    request.give(std::to_string(step), parameters);
  }
  request.give("state", optimizer->state());
  return json::object();
}

json time_optimizer(Request& request) {
  const auto component = request.spec<Component<OptimizerKind>>();
  NamedTensors parameters;
  const std::vector<int64_t> shape = request["shape"];
  for (int64_t i = 0; i < request.number("num_parameters"); ++i) {
    parameters.emplace_back(std::to_string(i) + ".weight", at::randn(shape).set_requires_grad(true));
    parameters.back().second.mutable_grad() = at::randn(shape);
  }
  const auto optimizer = component.build(group_parameters(component, parameters));
  const auto step = [&] { optimizer->step({optimizer->initial_rates(), [] { return at::zeros({}); }}); };
  for (int64_t i = 0; i < 5; ++i) step();
  json seconds = json::array();
  for (int64_t i = 0; i < request.number("steps"); ++i) {
    const auto start = std::chrono::steady_clock::now();
    step();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return {{"seconds", seconds}};
}

json run_scheduler(Request& request) {
  const auto component = request.spec<Component<SchedulerKind>>();
  SchedulerInputs inputs;
  for (const json& group : request["base"]) inputs.base.push_back(rates_from(group));
  inputs.total_steps = request.number("total_steps");
  const std::set<int64_t> reload_before = numbers(request, "reload_before");
  auto scheduler = component.build(inputs);
  std::vector<GroupRates> rates = inputs.base;
  json lr = json::array();
  json momentum = json::array();
  for (int64_t t = 0; t < request.number("steps"); ++t) {
    if (reload_before.contains(t)) {
      const json saved = scheduler->state();
      scheduler = component.build(inputs);
      if (!saved.is_null()) scheduler->load_state(saved);
    }
    scheduler->set(t, rates);
    lr.push_back(json::array());
    momentum.push_back(json::array());
    for (const GroupRates& group : rates) {
      lr.back().push_back(group.lr);
      momentum.back().push_back(group.momentum ? json(*group.momentum) : json());
    }
    if (request.has("metrics") && !request["metrics"].at(t).is_null()) {
      const json& metric = request["metrics"].at(t);
      scheduler->observe(metric.is_string() ? std::stod(metric.get<std::string>()) : metric.get<double>());
    }
  }
  return {{"lr", lr}, {"momentum", momentum}, {"monitor", scheduler->monitor()}};
}

}  // namespace trainrun
