#include "runner/interop/python/program.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>

#include "registry/language/figure_name.h"
#include "runner/interop/python/adapters.h"
#include "runner/interop/python/data.h"
#include "runner/interop/python/initialization.h"
#include "runner/interop/python/losses.h"
#include "runner/interop/python/metrics.h"
#include "runner/interop/python/optimization.h"
#include "runner/interop/python/program_text.h"
#include "runner/interop/python/sampling.h"
#include "runner/interop/python/settings.h"
#include "runner/interop/python/transforms.h"
#include "runner/interop/python/wiring.h"
#include "runner/model/model.h"

namespace trainrun::python {
namespace {

class ProgramWriter {
 public:
  ProgramWriter(const LoadedRecipe& loaded, const Catalog& catalog)
      : loaded_(loaded), recipe_(loaded.recipe), registry_(catalog.layers), info_(training_info(loaded.recipe)) {}

  Program write() {
    check_settings(loaded_, file_);
    write_constants(recipe_, has_eval(), file_);
    const auto model = plan_base_model(recipe_);
    file_.import("import argparse");
    file_.import("import json");
    file_.import("import torch");
    file_.import("from torch import nn");
    file_.import("from safetensors.torch import load_file");
    file_.import("from torch.utils.data import DataLoader");
    wiring_ = wire(recipe_, model->graph(), info_, registry_, file_);
    data_ = write_data(recipe_, wiring_.fields(), file_);
    transforms_ = write_transforms(recipe_, data_, info_, file_);
    loss_ = write_loss(recipe_, wiring_, file_);
    figures_ = write_metrics(recipe_, wiring_, file_);
    optimization_ = write_optimization(recipe_, file_);
    initialization_ = write_initialization(recipe_, file_);
    for (const std::string& line : write_adapters(recipe_, *model, !wiring_.reference.empty(), file_))
      initialization_.push_back(line);
    sampling_ = write_sampling(recipe_, file_);
    if (data_.is_tensors) {
      file_.import("from torch.utils.data import Dataset");
      file_.define("Samples", transforms_.train_pipeline.empty() ? kSamples : kTransformedSamples);
    }
    evaluate();
    train();
    std::string main = kMain;
    main.replace(main.find("OUTPUT"), 6, quoted(recipe_.name + ".pt"));
    file_.define("main", main);
    const std::string source = std::filesystem::path(loaded_.path).filename().string();
    return {file_.text(recipe_.name + ", trained as " + source + " says; trainrun wrote this program of it."),
            file_.notes()};
  }

 private:
  bool has_eval() const { return (recipe_.dataset.eval || recipe_.dataset.fold) && recipe_.evaluation.every; }
  bool accumulates() const { return recipe_.training.gradient_accumulation_steps > 1; }
  bool is_autocast() const { return recipe_.mixed_precision != MixedPrecision::kNo; }
  bool scales() const { return recipe_.mixed_precision == MixedPrecision::kFp16; }
  const Component<CallbackKind>* callback(const std::string& type) const {
    for (const auto& one : recipe_.callbacks) {
      if (one.type == type) return &one;
    }
    return nullptr;
  }

  std::string network_call() const {
    std::vector<std::string> inputs;
    std::string call = wiring_.network.call;
    for (const std::string& field : wiring_.network.inputs) inputs.push_back(in_batch(field));
    if (call.find("({all})") != std::string::npos) call.replace(call.find("{all}"), 5, joined(inputs));
    for (size_t i = 0; i < inputs.size(); ++i) {
      const std::string place = "{" + std::to_string(i) + "}";
      for (size_t at = call.find(place); at != std::string::npos; at = call.find(place))
        call.replace(at, place.size(), inputs[i]);
    }
    return call;
  }

  std::string dtype() const {
    return recipe_.mixed_precision == MixedPrecision::kBf16 ? "torch.bfloat16" : "torch.float16";
  }

  /// The forward pass, whose outputs get their names.
  void forward(Body& body) const {
    const std::string outputs = joined(wiring_.outputs);
    const std::string autocast = is_autocast() ? "torch.autocast(DEVICE, " + dtype() + ")" : "";
    if (autocast.empty()) {
      body.line(outputs + " = " + network_call());
    } else {
      body.line("with " + autocast + ":").in().line(outputs + " = " + network_call()).out();
      for (const std::string& output : wiring_.outputs) body.line(output + " = " + output + ".float()");
    }
    if (wiring_.reference.empty()) return;
    body.line("with torch.no_grad(), without_adapters(net)" + (autocast.empty() ? "" : ", " + autocast) + ":").in();
    body.line(wiring_.reference + " = " + network_call()).out();
    if (!autocast.empty()) body.line(wiring_.reference + " = " + wiring_.reference + ".float()");
  }

  /// Layers as they are in training.
  void to_training(Body& body) const {
    body.line(loss_.without_dropout ? "net.eval()  # the loss is one without dropout" : "net.train()");
  }

  void to_device(Body& body, const std::string& prepare) const {
    body.line("batch = {name: tensor.to(DEVICE) for name, tensor in batch.items()}");
    if (!prepare.empty()) body.line("batch = " + prepare);
    for (const std::string& field : data_.by_pixel)
      body.line(in_batch(field) + " = " + in_batch(field) + ".to(memory_format=torch.channels_last)");
  }

  /// Over samples whose loss is the mean over targets.
  void evaluate_by_counts(Body& body) {
    body.line("net.eval()");
    body.line("total, count" + std::string(count_right() ? ", right" : "") + " = 0.0, 0" +
              (count_right() ? ", 0" : ""));
    body.line("for batch in loader:").in();
    to_device(body, transforms_.eval_batch);
    forward(body);
    body.line("targets = " + loss_.count);
    body.line("total += " + loss_.call + ".item() * targets.item()");
    body.line("count += targets.item()");
    if (count_right())
      body.line("right += (" + wiring_.outputs[0] + ".argmax(-1) == " + in_batch(wiring_.targets[0].field) +
                ").sum().item()");
    body.out();
    std::string figures = "\"loss\": total / count";
    for (const Figure& figure : figures_) {
      if (figure.name == "perplexity")
        file_.import("import math"), figures += ", \"perplexity\": math.exp(total / count)";
      if (figure.name == "accuracy") figures += ", \"accuracy\": right / count";
    }
    body.line("return {" + figures + "}");
  }
  /// Of a loss whose samples cannot be put together over batches.
  void evaluate_by_batches(Body& body) {
    body.line("net.eval()").line("total, count = 0.0, 0").line("for batch in loader:").in();
    to_device(body, transforms_.eval_batch);
    forward(body);
    body.line("size = len(next(iter(batch.values())))");
    body.line("total += " + loss_.call + ".item() * size").line("count += size").out();
    body.line("return {\"loss\": total / count}");
    for (const Figure& figure : figures_) file_.note("the program does not compute " + figure.name);
  }
  bool count_right() const {
    return std::any_of(figures_.begin(), figures_.end(),
                       [](const Figure& figure) { return figure.name == "accuracy"; });
  }

  void evaluate() {
    if (!has_eval()) return;
    Body body;
    if (loss_.by_batch) {
      evaluate_by_batches(body);
    } else if (!loss_.count.empty()) {
      evaluate_by_counts(body);
    } else {
      std::vector<std::string> columns = wiring_.outputs;
      std::vector<std::string> values = wiring_.outputs;
      for (const auto& target : wiring_.targets)
        columns.push_back(target.variable), values.push_back(in_batch(target.field));
      body.line("net.eval()").line("rows = []").line("for batch in loader:").in();
      to_device(body, transforms_.eval_batch);
      forward(body);
      body.line("rows.append((" + joined(values) + (values.size() == 1 ? ",))" : "))")).out();
      const std::string all = joined(columns) + (columns.size() == 1 ? "," : "");
      body.line(all + " = (torch.cat(column) for column in zip(*rows, strict=True))");
      figures_over_all(body);
    }
    file_.define("evaluate", "@torch.no_grad()\ndef evaluate(net, loader" + scaling_parameters() +
                                 "):\n    \"\"\"Loss and metrics over all samples.\"\"\"\n" + body.text());
  }

  /// Of the target, where it was standardized: metrics are in its own units.
  std::string scaling_parameters() const { return scaled_target() ? ", offset, scale" : ""; }
  bool scaled_target() const { return data_.scalings.contains(info_.target) && !figures_.empty(); }

  void figures_over_all(Body& body) {
    const std::string loss = "loss_of(" + joined(wiring_.of_losses) + ").item()";
    if (figures_.empty()) {
      body.line("return {\"loss\": " + loss + "}");
      return;
    }
    body.line("figures = {\"loss\": " + loss + "}");
    if (scaled_target()) {
      for (const std::string& name : names_in_units())
        body.line(name + " = " + name + " * scale.to(DEVICE) + offset.to(DEVICE)");
    }
    for (const Figure& figure : figures_) body.line("figures[" + quoted(figure.name) + "] = " + figure.expression);
    body.line("return figures");
  }
  /// Outputs and target that metrics compare.
  std::vector<std::string> names_in_units() const {
    std::vector<std::string> names;
    for (const auto& metric : wiring_.metrics) {
      for (const std::string& name : metric) {
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      }
    }
    return names;
  }

  void make_data(Body& body) {
    if (data_.reads_pipelines) {
      body.line("augment = " + transforms_.train_pipeline);
      if (has_eval()) body.line("prepare_image = " + transforms_.eval_pipeline);
    }
    for (const std::string& line : data_.statements) body.line(line);
    for (const std::string& line : transforms_.statements) body.line(line);
    std::string train = "train_data";
    std::string eval = "eval_data";
    if (data_.is_tensors) {
      const bool transforms = !transforms_.train_pipeline.empty();
      train = "Samples(train_data" + (transforms ? ", augment)" : std::string(")"));
      eval = "Samples(eval_data" +
             (transforms
                  ? ", " + (transforms_.eval_pipeline.empty() ? std::string("nn.Identity()") : "prepare_image") + ")"
                  : std::string(")"));
      if (transforms) body.line("augment = " + transforms_.train_pipeline);
      if (transforms && has_eval() && !transforms_.eval_pipeline.empty())
        body.line("prepare_image = " + transforms_.eval_pipeline);
      body.line("train_data = " + train);
      if (has_eval()) body.line("eval_data = " + eval);
    }
    for (const std::string& line : sampling_.statements) body.line(line);
    // A DataLoader takes a number from torch's generator for each epoch, which layers that draw would miss.
    if (file_.has("GaussianSample")) data_.loader_arguments += ", generator=torch.Generator()";
    const std::string drop = recipe_.dataloader.drop_last ? ", drop_last=True" : "";
    body.line("train_loader = DataLoader(train_data, BATCH_SIZE" + sampling_.argument + drop + data_.loader_arguments +
              ")");
    if (has_eval()) body.line("eval_loader = DataLoader(eval_data, EVAL_BATCH_SIZE" + data_.loader_arguments + ")");
  }

  void count_steps(Body& body) {
    const std::string per_epoch =
        accumulates() ? "math.ceil(len(train_loader) / ACCUMULATION_STEPS)" : "len(train_loader)";
    if (accumulates()) file_.import("import math");
    if (recipe_.training.max_steps) {
      file_.import("import math");
      const bool has_both = recipe_.training.num_epochs.has_value();
      if (has_both) {
        body.line("total_steps = min(MAX_STEPS, " + std::to_string(*recipe_.training.num_epochs) + " * " + per_epoch +
                  ")");
      } else {
        body.line("total_steps = MAX_STEPS");
      }
      body.line("num_epochs = math.ceil(total_steps / " +
                (accumulates() ? per_epoch : std::string("len(train_loader)")) + ")");
      if (optimization_.by_epoch && optimization_.needs_total) body.line("total_epochs = num_epochs");
      return;
    }
    const bool by_steps = has_eval() && std::holds_alternative<int64_t>(*recipe_.evaluation.every);
    if ((optimization_.needs_total && !optimization_.by_epoch) || by_steps)
      body.line("total_steps = NUM_EPOCHS * " + per_epoch);
    if (optimization_.by_epoch && optimization_.needs_total) body.line("total_epochs = NUM_EPOCHS");
  }

  void train() {
    Body body;
    body.line("torch.manual_seed(SEED)");
    std::string make = written("net = ", wiring_.network.make, 0);
    make.pop_back();
    if (make.find('\n') == std::string::npos && wiring_.network.make.is_call) make += ".to(DEVICE)";
    body.line(make);
    if (!make.ends_with(".to(DEVICE)")) body.line("net.to(DEVICE)");
    for (const std::string& line : initialization_) body.line(line);
    body.line("if args.weights:").in().line("net.load_state_dict(load_file(args.weights))").out();
    if (file_.has("keep_originals")) body.line("keep_originals(net)");
    make_data(body);
    count_steps(body);
    for (const std::string& line : optimization_.statements) body.line(line);
    if (scales()) body.line("scaler = torch.amp.GradScaler(DEVICE, enabled=DEVICE == \"cuda\")");
    average(body);
    body.line("losses, figures, step = [], {}, 0");
    epochs(body);
    body.line("torch.save(" + std::string(is_averaged() ? "average.module" : "net") + ".state_dict(), args.output)");
    body.line("if args.losses:").in().line("with open(args.losses, \"w\") as file:").in();
    body.line("json.dump({\"losses\": losses, \"evaluation\": figures}, file)").out().out();
    file_.define("train", "def train(args):\n" + body.text());
  }

  bool is_averaged() const { return callback("EMA") != nullptr; }
  void average(Body& body) {
    const auto* ema = callback("EMA");
    if (!ema) return;
    file_.import("from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn");
    const std::string buffers = ema->attributes.at("use_buffers").get<bool>() ? ", use_buffers=True" : "";
    body.line("average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(" + ema->attributes.at("decay").dump() +
              ")" + buffers + ")");
  }

  void epochs(Body& body) {
    const bool has_limit = recipe_.training.max_steps.has_value();
    const bool unfreezes = recipe_.model.unfreeze_at_epoch.has_value();
    const bool counts_epochs = unfreezes || !sampling_.each_epoch.empty() ||
                               (has_eval() && std::holds_alternative<std::string>(*recipe_.evaluation.every));
    body.line("for " + std::string(counts_epochs ? "epoch" : "_") + " in range(" +
              (has_limit ? "num_epochs" : "NUM_EPOCHS") + "):")
        .in();
    if (unfreezes) body.line("net.requires_grad_(True)");
    if (unfreezes)
      body.line("if epoch < " + std::to_string(*recipe_.model.unfreeze_at_epoch) + ":").in().line("freeze(net)").out();
    for (const std::string& line : sampling_.each_epoch) body.line(line);
    to_training(body);
    if (accumulates()) {
      file_.import("import itertools");
      file_.define("windows", kBatchWindows);
      body.line("for window in windows(train_loader, ACCUMULATION_STEPS):").in();
    } else {
      body.line("for batch in train_loader:").in();
    }
    one_step(body);
    body.line("step += 1");
    body.line("if step % 100 == 0:").in().line("print(f\"step {step}: loss {losses[-1]:.4f}\")").out();
    const auto* every = recipe_.evaluation.every ? std::get_if<int64_t>(&*recipe_.evaluation.every) : nullptr;
    if (has_eval() && every) {
      body.line("if step % " + std::to_string(*every) + " == 0 or step == total_steps:").in();
      evaluation(body, "step {step}");
      to_training(body);
      body.out();
    }
    if (has_limit) body.line("if step == total_steps:").in().line("break").out();
    body.out();
    if (optimization_.by_epoch) {
      for (const std::string& scheduler : optimization_.schedulers) body.line(scheduler + ".step()");
    }
    if (has_eval() && !every) evaluation(body, "epoch {epoch}");
    body.out();
  }

  void evaluation(Body& body, const std::string& when) {
    const auto* ema = callback("EMA");
    const bool by_average = ema && ema->attributes.at("use_for_evaluation").get<bool>();
    if (by_average && !ema->attributes.at("use_buffers").get<bool>()) {
      body.line("for averaged, own in zip(average.module.buffers(), net.buffers(), strict=True):")
          .in()
          .line("averaged.copy_(own)")
          .out();
    }
    const auto scaling = data_.scalings.find(info_.target);
    const std::string further = scaled_target() ? ", " + scaling->second.first + ", " + scaling->second.second : "";
    body.line("figures = evaluate(" + std::string(by_average ? "average.module" : "net") + ", eval_loader" + further +
              ")");
    body.line("print(f\"" + when + ":\", figures)");
  }

  void zero(Body& body) const {
    for (const std::string& optimizer : optimization_.optimizers) body.line(optimizer + ".zero_grad()");
  }

  void clip(Body& body) const {
    if (scales() && (recipe_.training.max_grad_norm || recipe_.training.max_grad_value)) {
      for (const std::string& optimizer : optimization_.optimizers) body.line("scaler.unscale_(" + optimizer + ")");
    }
    if (recipe_.training.max_grad_value) body.line("nn.utils.clip_grad_value_(net.parameters(), MAX_GRAD_VALUE)");
    if (recipe_.training.max_grad_norm) body.line("nn.utils.clip_grad_norm_(net.parameters(), MAX_GRAD_NORM)");
  }

  /// Losses and gradients of one step; the loss is a number in `loss`.
  void gradients(Body& body) const {
    zero(body);
    const std::string backward = scales() ? "scaler.scale(loss).backward()" : "loss.backward()";
    if (!accumulates()) {
      if (!optimization_.evaluates_again) to_device(body, transforms_.train_batch);
      forward(body);
      body.line("loss = " + loss_.call).line(backward);
      clip(body);
      return;
    }
    const std::string first = "next(iter(batch.values()))";
    const std::string size = loss_.count.empty() ? "len(" + first + ")" : loss_.count;
    const std::string batches = optimization_.evaluates_again ? "batches" : "window";
    body.line("total = sum(" + size + " for batch in " + batches + ")");
    body.line("value = 0.0");
    body.line("for batch in " + batches + ":").in();
    if (!optimization_.evaluates_again) to_device(body, transforms_.train_batch);
    forward(body);
    body.line("loss = " + loss_.call + (loss_.is_sum ? "" : " * " + size + " / total")).line(backward);
    body.line("value += loss.item()").out();
    clip(body);
  }

  /// A step of an optimizer that computes the gradients several times, of the same batches.
  void again(Body& body) const {
    if (accumulates()) {
      body.line("batches = []").line("for batch in window:").in();
      to_device(body, transforms_.train_batch);
      body.line("batches.append(batch)").out();
    } else {
      to_device(body, transforms_.train_batch);
    }
    body.line("").line(accumulates() ? "def closure(batches=batches):" : "def closure(batch=batch):").in();
    gradients(body);
    body.line(accumulates() ? "return value" : "return loss").out();
    body.line("").line(accumulates() ? "losses.append(optimizer.step(closure))"
                                     : "losses.append(optimizer.step(closure).item())");
  }

  void one_step(Body& body) const {
    if (optimization_.evaluates_again) {
      again(body);
    } else {
      gradients(body);
      for (const std::string& optimizer : optimization_.optimizers)
        body.line(scales() ? "scaler.step(" + optimizer + ")" : optimizer + ".step()");
      if (scales()) body.line("scaler.update()");
      body.line(accumulates() ? "losses.append(value)" : "losses.append(loss.item())");
    }
    if (!optimization_.by_epoch) {
      for (const std::string& scheduler : optimization_.schedulers) body.line(scheduler + ".step()");
    }
    if (is_averaged()) body.line("average.update_parameters(net)");
  }

  const LoadedRecipe& loaded_;
  const Recipe& recipe_;
  const LayerRegistry& registry_;
  DatasetInfo info_;
  SourceFile file_;
  Wiring wiring_;
  Data data_;
  Transforms transforms_;
  LossForm loss_;
  std::vector<Figure> figures_;
  Optimization optimization_;
  std::vector<std::string> initialization_;
  Sampling sampling_;
};

}  // namespace

Program write_program(const LoadedRecipe& loaded, const Catalog& catalog) {
  return ProgramWriter(loaded, catalog).write();
}

}  // namespace trainrun::python
