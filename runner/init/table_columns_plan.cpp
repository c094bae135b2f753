#include "runner/init/table_columns_plan.h"

#include <algorithm>
#include <set>

#include "registry/language/text_forms.h"
#include "runner/base/text.h"
#include "runner/init/draft.h"

namespace trainrun {
namespace {

class Planner {
 public:
  Planner(const TableSight& table, const TableTarget& target) : table_(table), target_(target) {
    plan_.groups = {{"numbers", "scaled; a missing one becomes the median", {}},
                    {"yes or no", "1 or 0", {}},
                    {"dates", "days, scaled", {}},
                    {"categories", "a 0 or 1 for each value", {}}};
  }

  ColumnPlan plan() {
    for (const ColumnSight& column : table_.columns) {
      if (column.name != target_.name) add(column);
    }
    for (const std::string& name : table_.unread) {
      if (name != target_.name) plan_.left.push_back(name + " (values of a type that is not read)");
    }
    add_time();
    add_odd();
    plan_.lists_features = !plan_.left.empty();
    return std::move(plan_);
  }

 private:
  void leave_out(const ColumnSight& column, const std::string& why) {
    plan_.left.push_back(column.name + " (" + why + ")");
  }

  void add(const ColumnSight& column) {
    std::string fault;
    const ColumnOptions options = column.facts.options(fault);
    if (is_id_like(column, table_.rows)) {
      plan_.ids.push_back(column.name);
    } else if (fault.starts_with("holds text") && 2 * column.amounts > column.texts) {
      leave_out(column, "amounts such as '" + column.first_amount +
                            "', which are read as numbers only without their signs or units");
    } else if (fault.starts_with("holds text")) {
      plan_.texts.push_back(column.name);
      leave_out(column, "text, " + grouped(column.facts.distinct()) + " different ones");
    } else if (column.facts.has_odd() && !fault.empty()) {
      has_odd_ = true;
      plan_.doubts.push_back(odd_sentence(column));
      use(0, column);
    } else if (options.is_list()) {
      leave_out(column, "lists or objects");
    } else if (!fault.empty() && options.is_date()) {
      plan_.doubts.push_back(column.name + ": " + fault + "; it is left out. To use it, name its format in `columns`");
      leave_out(column, "dates in an unclear format");
    } else if (!fault.empty()) {
      leave_out(column, fault.starts_with("has no value") ? "empty" : fault);
    } else if (column.facts.distinct() < 2 && column.facts.missing() == 0) {
      leave_out(column, "one value alone");
    } else if (options.is_date()) {
      add_date(column, options);
    } else {
      use(options.is_category() ? 3 : options.is_boolean() ? 1 : 0, column);
    }
  }

  void add_date(const ColumnSight& column, const ColumnOptions& options) {
    if (plan_.time.empty() && column.facts.missing() == 0 && column.is_in_order(options)) {
      plan_.time = column.name;
    } else {
      unordered_.push_back(column.name);
    }
    dates_.push_back(&column);
  }

  void add_time() {
    for (const ColumnSight* column : dates_) {
      if (column->name == plan_.time) {
        plan_.ids.push_back(column->name);
      } else {
        use(2, *column);
      }
    }
    if (plan_.time.empty() && !unordered_.empty()) {
      plan_.doubts.push_back("the rows are not in the order of " + join(unordered_) +
                             ", so that the rows to evaluate on are drawn at random; if the future is to be predicted "
                             "from the past, sort the file and run init again");
    }
  }

  void use(size_t group, const ColumnSight& column) {
    const bool is_category = group == 3;
    std::string what = is_category ? std::to_string(column.facts.distinct()) + " values" : "";
    if (const int64_t missing = is_category ? column.facts.empty() : column.facts.missing(); missing > 0) {
      what += (what.empty() ? "" : ", ") + grouped(missing) + " missing";
    }
    plan_.groups[group].names.push_back(column.name + (what.empty() ? "" : " (" + what + ")"));
    plan_.features.push_back(column.name);
  }

  void add_odd() {
    if (!has_odd_) return;
    TableOptions options;  // whose na_values are instead of the usual ones, so that these have to be among them
    options.na_values = {""};
    const std::set<std::string> categories = all_categories();
    for (const std::string& word : MissingValues::words()) {
      if (!categories.contains(word)) options.na_values->push_back(word);
    }
    plan_.na_values = na_values_of(table_.facts(), options);
    for (const ColumnSight& column : table_.columns) {
      if (column.name != target_.name && column.facts.has_odd()) plan_.odd.push_back(odd_sentence(column));
    }
  }

  static std::string odd_sentence(const ColumnSight& column) {
    return column.name + ": " + column.facts.odd_text() + ", are not " + column.facts.usual_text() +
           ", and are taken as missing values";
  }

  /// What is called None in such a column is no missing value.
  std::set<std::string> all_categories() const {
    std::set<std::string> all;
    for (const ColumnSight& column : table_.columns) {
      std::string fault;
      const bool is_label = column.name == target_.name && target_.is_class;
      const bool is_category = column.facts.options(fault).is_category() && fault.empty() && !column.facts.has_odd();
      if (!is_label && !is_category) continue;
      const std::vector<std::string> names = column.facts.names(ColumnOptions());
      all.insert(names.begin(), names.end());
    }
    return all;
  }

  const TableSight& table_;
  const TableTarget& target_;
  ColumnPlan plan_;
  std::vector<std::string> unordered_;
  std::vector<const ColumnSight*> dates_;
  bool has_odd_ = false;
};

}  // namespace

ColumnPlan plan_columns(const TableSight& table, const TableTarget& target) { return Planner(table, target).plan(); }

}  // namespace trainrun
