#include "runner/interop/python/parts.h"

#include "runner/interop/python/expression.h"

namespace trainrun::python {
namespace {

constexpr const char* kSplitRows = R"(def split_rows(count, fractions):
    """The numbers of the rows of each part; the parts follow each other."""
    lengths = [math.floor(count * fraction) for fraction in fractions]
    for i in range(count - sum(lengths)):
        lengths[i % len(lengths)] += 1
    return torch.arange(count).split(lengths)
)";

constexpr const char* kStratifiedParts = R"(def stratified_parts(classes, fractions, generator=None):
    """The numbers of the rows of each part, which gets its share of every class; without a generator in their order."""
    lengths = [math.floor(len(classes) * fraction) for fraction in fractions]
    for i in range(len(classes) - sum(lengths)):
        lengths[i % len(lengths)] += 1
    members = {}
    for row, label in enumerate(classes):
        members.setdefault(label, []).append(row)
    parts, lags, total = [[] for _ in lengths], [0] * len(lengths), sum(lengths)
    for rows in members.values():
        counts = [len(rows) * length // total for length in lengths]
        rests = [len(rows) * length % total for length in lengths]
        lags = [lag + rest for lag, rest in zip(lags, rests, strict=True)]
        uneven = sorted((part for part, rest in enumerate(rests) if rest > 0), key=lambda part: -lags[part])
        for part in uneven[: len(rows) - sum(counts)]:
            counts[part] += 1
            lags[part] -= total
        order = torch.randperm(len(rows), generator=generator).tolist() if generator else range(len(rows))
        drawn = iter([rows[i] for i in order])
        for part, count in zip(parts, counts, strict=True):
            part.extend(itertools.islice(drawn, count))
    return [sorted(part) for part in parts]
)";

}  // namespace

std::string Part::rows() const {
  return "parts[" + std::to_string(number) + "]" + (numbers.starts_with("random_split") ? ".indices" : "");
}

std::optional<Part> part_of(const DataSource& source, const Component<DatasetKind>& set, const std::string& count,
                            const std::string& classes) {
  const Value* split = set.written.find("split");
  if (!split || !split->is_map()) return std::nullopt;
  if (const Value* group = split->find("group"); group && !group->is_null()) {
    source.file.refuse(group->place(), set.path + ".split.group",
                       "parts by group are not written; save each part as a file of its own");
  }
  std::string fractions;
  size_t parts = 2;
  if (const Value* given = split->find("fractions")) {
    parts = given->items().size();
    for (const Value& item : given->items()) fractions += (fractions.empty() ? "" : ", ") + literal(item);
  } else {
    fractions = "0.8, 0.2";
  }
  const Value* seed = split->find("seed");
  const Value* shuffle = split->find("shuffle");
  const Value* stratify = split->find("stratify");
  const std::string generator = "torch.Generator().manual_seed(" + (seed ? seed->text() : "0") + ")";
  const bool is_shuffled = !shuffle || shuffle->text() != "false";
  Part part;
  if (stratify && stratify->text() == "true") {
    source.file.import("import itertools");
    source.file.import("import math");
    source.file.define("stratified_parts", kStratifiedParts);
    part.numbers =
        "stratified_parts(" + classes + ", [" + fractions + "]" + (is_shuffled ? ", " + generator : "") + ")";
  } else if (!is_shuffled) {
    source.file.import("import math");
    source.file.define("split_rows", kSplitRows);
    part.numbers = "split_rows(" + count + ", [" + fractions + "])";
  } else {
    source.file.import("from torch.utils.data import random_split");
    part.numbers = "random_split(range(" + count + "), [" + fractions + "], " + generator + ")";
  }
  const Value* name = split->find("part");
  const std::string which = name ? name->text() : "train";
  part.number = which == "train" ? 0 : which == "validation" ? 1 : which == "test" ? parts - 1 : std::stoul(which);
  return part;
}

}  // namespace trainrun::python
