#pragma once

#include <string>
#include <vector>

#include "runner/report/errors/error_code.h"

namespace trainrun {

/// What `trainrun explain T0101` says of one kind of mistake. The examples are made of a small recipe that is right, in
/// which sections (top-level keys with all that is below them) are replaced or added.
struct ErrorPage {
  ErrorCode code;
  std::string title;                // "unknown key"
  std::string meaning;              // one paragraph
  std::vector<std::string> wrong;   // sections that give the mistake
  std::string mend;                 // what to do
  std::vector<std::string> mended;  // the sections put right; {}: without them
  std::string given = {};           // given on the command line after the wrong recipe
};

/// Every code, in the order of the numbers.
const std::vector<ErrorPage>& error_pages();
/// The page of "T0101", "t0101"; nullptr where there is no such code.
const ErrorPage* find_error_page(const std::string& code);
/// Whether `word` has the form of a code, known or not.
bool looks_like_code(const std::string& word);

/// The whole recipe that gives the mistake, and the one without it.
std::string wrong_recipe(const ErrorPage& page);
std::string mended_recipe(const ErrorPage& page);

/// For a console: one page; a line for each code.
std::string to_text(const ErrorPage& page);
std::string error_list();
/// docs/reference/errors.md
std::string errors_markdown();

/// Where the pages are written: those of each hundred.
void add_value_errors(std::vector<ErrorPage>& pages);
void add_file_errors(std::vector<ErrorPage>& pages);
void add_model_errors(std::vector<ErrorPage>& pages);
void add_job_errors(std::vector<ErrorPage>& pages);

}  // namespace trainrun
