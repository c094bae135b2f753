#include "runner/init/table_draft.h"

#include <algorithm>
#include <cmath>

#include "registry/language/error.h"
#include "registry/language/text_forms.h"
#include "runner/base/shell_word.h"
#include "runner/base/text.h"
#include "runner/init/table_columns_plan.h"

namespace trainrun {
namespace {

constexpr double kTrained = 0.8;  // of the rows, where a part is held out

std::string percent(double share) { return std::to_string(std::lround(100 * share)) + " %"; }

/// How the rows are divided.
struct RowSplit {
  std::string options;  // "fractions: [0.8, 0.2], stratify: true"; "": there is another file
  std::string text;
  int64_t rows = 0;  // to learn from
};

RowSplit split_rows(const TableSight& table, const TableTarget& target, const ColumnPlan& plan,
                    const TableFiles& files) {
  const int64_t usable = table.rows - target.without;
  if (!files.eval.empty()) return {"", "trained on " + files.train + ", evaluated on " + files.eval, usable};
  const auto rows = static_cast<int64_t>(kTrained * static_cast<double>(usable));
  RowSplit split{"fractions: [0.8, 0.2]", "", rows};
  if (!plan.time.empty()) {
    split.options += ", shuffle: false";
    split.text = "by time: the first " + percent(kTrained) + " of the rows to train, the last to evaluate";
    return split;
  }
  int64_t rarest = usable;
  for (const auto& [name, count] : target.counts) rarest = std::min(rarest, count);
  constexpr int64_t kEnough = 5;
  if (target.is_class && rarest >= kEnough) split.options += ", stratify: true";
  split.text = percent(kTrained) + " of the rows to train, the others to evaluate, drawn at random" +
               (target.is_class && rarest >= kEnough ? ", each class in its share" : "");
  return split;
}

void add_seen(Draft& draft, const TableSight& table, const TableTarget& target, const ColumnPlan& plan,
              const RowSplit& split) {
  std::string first =
      table.path + ": " + grouped(table.rows) + " rows, " + std::to_string(table.columns.size()) + " columns";
  for (const std::string& told : table.told) first += "; " + told;
  draft.seen.push_back(first);
  draft.seen.push_back("predicted: " + target.name + " (" + target.reason + "), " +
                       (target.is_class
                            ? std::to_string(target.counts.size()) + " classes: " + counts_text(target.counts)
                            : "a number from " + in_figures(table.find(target.name)->least, 4) + " to " +
                                  in_figures(table.find(target.name)->most, 4)));
  for (const ColumnPlan::Group& group : plan.groups) {
    if (group.names.empty()) continue;
    draft.seen.push_back(group.what + ": " + join_first(group.names, 8, LeftOut::kCount) + ": " + group.becomes);
  }
  if (!plan.ids.empty()) draft.seen.push_back("names of rows, not learnt from: " + join(plan.ids));
  if (!plan.left.empty()) draft.seen.push_back("left out: " + join_first(plan.left, 8, LeftOut::kCount));
  draft.seen.push_back("split: " + split.text);
}

void add_doubts(Draft& draft, const TableSight& table, const TableTarget& target, const ColumnPlan& plan,
                const RowSplit& split) {
  constexpr int64_t kFewRows = 100;
  if (!target.doubt.empty()) draft.doubts.push_back(target.doubt);
  draft.doubts.insert(draft.doubts.end(), plan.doubts.begin(), plan.doubts.end());
  if (target.without > 0) {
    draft.doubts.push_back(counted(target.without, "row has", "rows have") + " no " + target.name +
                           ", and are left out (broken: skip)");
  }
  if (table.copies > 0) {
    draft.doubts.push_back(counted(table.copies, "row is", "rows are") +
                           " like one before: where both sets have them, the figures are too good");
  }
  if (split.rows < kFewRows) {
    draft.doubts.push_back("there are " + std::to_string(split.rows) +
                           " rows to learn from: figures of so few depend on chance; dataset.fold (cross-validation) "
                           "gives steadier ones");
  }
  for (const auto& [name, count] : target.counts) {
    if (count < 5) {
      draft.doubts.push_back("the class '" + name + "' has " + counted(count, "row", "rows") +
                             ", too few to learn or to evaluate it");
      break;
    }
  }
  constexpr double kSentence = 2;
  if (!plan.texts.empty() && table.find(plan.texts[0])->mean_words() >= kSentence) {
    draft.doubts.push_back("the texts in " + join(plan.texts) + " are not read; --text " + shell_word(plan.texts[0]) +
                           " writes a recipe for a model of texts, which reads them alone");
  }
}

std::string dataset_text(const TableSight& table, const TableTarget& target, const ColumnPlan& plan,
                         const TableFiles& files, const RowSplit& split) {
  std::string text =
      "dataset:\n  train: &rows\n    type: " + table.type + "\n    path: " + recipe_word(files.train) + "\n";
  if (table.encoding) text += "    encoding: " + word_of(*table.encoding) + "\n";
  for (const std::string& setting : table.settings) text += "    " + setting + "\n";
  if (!plan.na_values.empty()) text += "    " + na_values_text(plan.na_values) + "\n";
  text += "    label: " + recipe_word(target.name) + "\n";
  if (!target.is_class) text += "    task: regression\n";
  if (!plan.ids.empty()) {
    text += commented("    id: " + recipe_list(plan.ids),
                      plan.time.empty() ? "only tell which row it is" : "not learnt from");
  }
  if (plan.lists_features) {
    text += commented("    features: " + recipe_list(plan.features), "all that can be used");
  }
  text += commented("    columns: auto", "numbers, categories, dates: what the values say");
  if (target.without > 0) text += commented("    broken: skip", "rows without " + target.name);
  if (split.options.empty()) return text + "  eval: {<<: *rows, path: " + recipe_word(files.eval) + "}\n";
  const bool by_time = !plan.time.empty();
  text += commented("    split: {" + split.options + ", part: train}",
                    by_time ? "the past; the last rows are the future" : "");
  return text + "  eval: {<<: *rows, split: {" + split.options + ", part: validation}}\n";
}

std::string recipe_of_table(const TableSight& table, const TableTarget& target, const ColumnPlan& plan,
                            const TableFiles& files, const RowSplit& split, const std::string& name,
                            int64_t batch_size) {
  const bool unbalanced = target.is_class && is_unbalanced(target.counts);
  std::string text = heading("Predicts " + target.name + " from " +
                             counted(static_cast<int64_t>(plan.features.size()), "column", "columns") + " of " +
                             table.path + ", " + grouped(table.rows) + " rows");
  text += "version: 1\nname: " + recipe_word(name) + "\nseed: 1\n\nmodel:\n";
  text +=
      mlp_layers(split.rows, target.is_class ? target.num_classes : 1, target.is_class ? "a logit for each class" : "");
  text +=
      target.is_class ? "loss: CrossEntropyLoss\n" + metrics_text(unbalanced) : "loss: MSELoss\nmetrics: [MAE, R2]\n";
  text += "\n" + dataset_text(table, target, plan, files, split);
  text += target.is_class ? "  transforms: [Standardize]\n"
                          : commented("  transforms: [Standardize, {type: Standardize, field: label}]",
                                      "figures and predictions keep the unit of " + target.name);
  return text + mlp_training(split.rows, batch_size);
}

}  // namespace

std::string mlp_layers(int64_t rows, int64_t outputs, const std::string& outputs_comment) {
  const int64_t width = rows < 1000 ? 64 : rows < 10000 ? 128 : 256;
  const std::string hidden = "    - {type: Linear, out_features: " + std::to_string(width) + "}";
  std::string text = "  layers:\n" + commented(hidden, "for " + grouped(rows) + " rows: more rows bear more features");
  text += "    - ReLU\n    - {type: Dropout, p: 0.1}\n" + hidden + "\n    - ReLU\n    - {type: Dropout, p: 0.1}\n";
  return text + commented("    - {type: Linear, out_features: " + std::to_string(outputs) + "}", outputs_comment);
}

int64_t mlp_batch_size(int64_t rows) {
  constexpr double kStepsOfEpoch = 40;
  return power_of_two(static_cast<double>(rows) / kStepsOfEpoch, 16, 512);
}

std::string mlp_training(int64_t rows, int64_t batch_size) {
  constexpr int64_t kSteps = 3000;
  const Length length = length_for(rows, batch_size, kSteps, 10, 100);
  std::string text = "dataloader: {batch_size: " + std::to_string(batch_size) + ", eval_batch_size: 1024}\n\n";
  text +=
      "optimizer: {type: AdamW, lr: 2.0e-3, weight_decay: 0.05}\nscheduler: {type: CosineWithWarmup, warmup_ratio: "
      "0.05}\n";
  text += "training: {num_epochs: " + std::to_string(length.epochs) + "}\n";
  return text + "callbacks:\n" +
         commented("  - {type: EarlyStopping, monitor: eval/loss, patience: " + std::to_string(length.patience) +
                       ", restore_best: true}",
                   "ends with the best weights");
}

namespace {

/// `plan`: of what the recipe reads, so that what is told of the columns is what the training sees.
Draft draft_planned(const TableSight& table, const TableTarget& target, const ColumnPlan& plan, const TableFiles& files,
                    const InitOptions& options) {
  if (plan.features.empty()) {
    std::string advice =
        plan.texts.empty() ? "" : "; --text " + shell_word(plan.texts[0]) + " writes a recipe for a model of texts";
    if (table.columns.size() == 1) throw Error(table.path + ": has no column but " + target.name + " to learn from");
    throw Error(table.path + ": no column but " + target.name + " can be learnt from: " + join(plan.left) +
                (plan.ids.empty() ? "" : "; only tell which row it is: " + join(plan.ids)) + advice);
  }
  const RowSplit split = split_rows(table, target, plan, files);
  Draft draft;
  add_seen(draft, table, target, plan, split);
  add_doubts(draft, table, target, plan, split);
  draft.batch_size = mlp_batch_size(split.rows);
  draft.recipe = [=, name = options.name](int64_t batch_size) {
    return recipe_of_table(table, target, plan, files, split, name, batch_size);
  };
  return draft;
}

}  // namespace

Draft draft_table(const TableSight& table, const TableTarget& target, const TableFiles& files,
                  const InitOptions& options) {
  const ColumnPlan plan = plan_columns(table, target);
  if (plan.na_values.empty()) return draft_planned(table, target, plan, files, options);
  const TableSight read = look_again(table, plan.na_values);
  InitOptions chosen = options;
  chosen.target = target.name;
  TableTarget read_target = choose_target(read, nullptr, chosen);
  read_target.reason = target.reason;
  ColumnPlan read_plan = plan_columns(read, read_target);
  read_plan.na_values = plan.na_values;
  read_plan.doubts.insert(read_plan.doubts.begin(), plan.odd.begin(), plan.odd.end());
  return draft_planned(read, read_target, read_plan, files, options);
}

}  // namespace trainrun
