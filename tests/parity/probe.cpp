// Lets a test in Python build any component as a recipe would and see what it does: one JSON request a line on standard
// input, one JSON reply a line on standard output, tensors by way of safetensors files. tests/parity/probe.py is its
// other end.
//
//   {"op": "layer", "spec": {"type": "Linear", "out_features": 3}, "seed": 0, "tensors": "in.safetensors", "results":
//   "out.safetensors"}

#include <ATen/Context.h>

#include <cstdlib>
#include <iostream>

#include "runner/loggers/loggers.h"
#include "runner/model/initial_weights.h"
#include "runner/model/model.h"
#include "runner/model/pretrained_weights.h"
#include "runner/model/recipe_loader.h"
#include "runner/process/process_changes.h"
#include "tests/parity/batches_probe.h"
#include "tests/parity/chat_probe.h"
#include "tests/parity/data_probe.h"
#include "tests/parity/fuzz_readers.h"
#include "tests/parity/generation_probe.h"
#include "tests/parity/imagined_gpu.h"
#include "tests/parity/layers_probe.h"
#include "tests/parity/onnx_probe.h"
#include "tests/parity/optimizers_probe.h"
#include "tests/parity/probe_request.h"
#include "tests/parity/sweep_probe.h"
#include "tests/parity/tokenizer_probe.h"
#include "tests/parity/training_probe.h"

namespace trainrun {
namespace {

using nlohmann::json;

json list_catalog(Request& request) {
  json kinds = json::object();
  request.catalog().for_each([&]<class Kind>(const Registry<Kind>& registry) {
    kinds[Kind::kName] = json::object();
    for (const auto& [name, entry] : registry.entries()) {
      json parameters = json::array();
      for (const Parameter& parameter : entry.parameters) parameters.push_back(parameter.name);
      kinds[Kind::kName][name] = parameters;
    }
  });
  return {{"kinds", kinds}};
}

/// The model of a recipe, as a job has it before its first step: its state dict, and, where inputs are given
/// ("input.image"), what the last layer gives in evaluation.
json run_model(Request& request) {
  Catalog catalog = request.catalog();
  const auto overrides = request["overrides"].get<std::vector<std::string>>();
  const Recipe recipe = load_recipe(request["recipe"], overrides, catalog).recipe;
  at::manual_seed(static_cast<uint64_t>(recipe.seed));
  Model model(recipe, training_info(recipe));
  const std::vector<std::string> passed_over = load_initial_weights(recipe, model);
  request.give("state", model.state_dict());
  Batch batch;
  for (const auto& [name, tensor] : request.tensors("input")) batch.set(name, tensor);
  const std::vector<std::string> notes = pretrained_notes(model.graph());
  if (batch.fields().empty()) return {{"passed_over", passed_over}, {"notes", notes}};
  const at::NoGradGuard no_gradients;
  model.train(false);
  request.give("output", "0", model.forward(batch)[0]);
  return {{"passed_over", passed_over}, {"notes", notes}};
}

/// A whole run of the recipe; its weights at the end.
json run_training(Request& request) {
  Catalog catalog = request.catalog();
  NamedTensors state;
  const std::string device = request.has("device") ? request["device"].get<std::string>() : "";
  json reply =
      train_recipe(request["recipe"], request["overrides"].get<std::vector<std::string>>(), catalog, state, device);
  request.give("state", state);
  return reply;
}

/// A recipe's training batches.
json run_batches(Request& request) {
  Catalog catalog = request.catalog();
  const WantedBatches wanted = {request.number("rank"), request.number("world_size"), request.number("epoch"),
                                request.number("start")};
  request.give("output",
               batches_of(request["recipe"], request["overrides"].get<std::vector<std::string>>(), catalog, wanted));
  return json::object();
}

/// What became of changed files.
json run_fuzz(Request& request) {
  return run_fuzzer(request.catalog(), request.fields(), examples_of(request.tensors("input")));
}

json run_encode(Request& request) {
  TensorMap results;
  json reply = encode_texts(request.fields(), request.tensors("first"), request.tensors("second"), results);
  for (const auto& [name, tensor] : results) request.give("ids", name, tensor);
  return reply;
}

json run_decode(Request& request) {
  TensorMap results;
  json reply = decode_ids(request.fields(), request.tensors("ids"), results);
  for (const auto& [name, tensor] : results) request.give("text", name, tensor);
  return reply;
}

json run_templates(Request& request) { return render_templates(request.fields()); }
json run_chats(Request& request) { return render_chats(request.fields()); }

json run_tpe(Request& request) { return next_points(request.fields()); }
json run_tpe_excess(Request& request) { return excesses_of(request.fields()); }
json run_halving(Request& request) { return halving_decisions(request.fields()); }

json run_next_logits(Request& request) {
  TensorMap results;
  json reply = next_logits(request.catalog(), request.fields(), results);
  for (const auto& [name, tensor] : results) request.give("logits", name, tensor);
  return reply;
}

json run_next_scores(Request& request) {
  TensorMap results;
  json reply = next_scores(request.fields(), request.tensors("input").at("logits"), results);
  for (const auto& [name, tensor] : results) request.give("next", name, tensor);
  return reply;
}

json answer(const Catalog& catalog, const json& fields) {
  static const std::map<std::string, json (*)(Request&)> operations = {{"batches", run_batches},
                                                                       {"catalog", list_catalog},
                                                                       {"chats", run_chats},
                                                                       {"dataset", run_dataset},
                                                                       {"fuzz", run_fuzz},
                                                                       {"halving", run_halving},
                                                                       {"layer", run_layer},
                                                                       {"loss", run_loss},
                                                                       {"metric", run_metric},
                                                                       {"model", run_model},
                                                                       {"next_logits", run_next_logits},
                                                                       {"next_scores", run_next_scores},
                                                                       {"onnx", run_onnx},
                                                                       {"onnx_recipe", run_onnx_recipe},
                                                                       {"optimizer", run_optimizer},
                                                                       {"sampler", run_sampler},
                                                                       {"scheduler", run_scheduler},
                                                                       {"shapes", run_shapes},
                                                                       {"time_optimizer", time_optimizer},
                                                                       {"tpe", run_tpe},
                                                                       {"tpe_excess", run_tpe_excess},
                                                                       {"train", run_training},
                                                                       {"transform", run_transform},
                                                                       {"partition", run_partition},
                                                                       {"templates", run_templates},
                                                                       {"encode", run_encode},
                                                                       {"decode", run_decode}};
  Request request(catalog, fields);
  json reply = operations.at(fields.at("op"))(request);
  request.write_results();
  return reply;
}

}  // namespace
}  // namespace trainrun

int main() {
  trainrun::install_library_changes();
  if (std::getenv("TRAINRUN_IMAGINED_GPU")) trainrun::imagine_gpu();
  trainrun::Catalog catalog = trainrun::builtins();
  trainrun::add_loggers(catalog.loggers);
  for (std::string line; std::getline(std::cin, line);) {
    nlohmann::json reply;
    try {
      reply = trainrun::answer(catalog, nlohmann::json::parse(line));
    } catch (const std::exception& error) {
      reply = {{"error", error.what()}};
    }
    // a damaged file's error may quote what is no UTF-8
    std::cout << reply.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n' << std::flush;
  }
  std::_Exit(0);  // as tools/main.cpp does
}
