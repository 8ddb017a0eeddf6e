#ifndef SHARDLINE_TEXT_H
#define SHARDLINE_TEXT_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// Chat templates as Hugging Face renders them. No call unwinds or aborts; every pointer given in
// is read during the call only.

typedef enum shardline_template_status {
    SHARDLINE_TEMPLATE_OK = 0,
    SHARDLINE_TEMPLATE_RAISED = 1,         // the template itself refused (raise_exception)
    SHARDLINE_TEMPLATE_FAILED = 2,         // the template does not fit these inputs
    SHARDLINE_TEMPLATE_BAD_SOURCE = 3,     // does not parse
    SHARDLINE_TEMPLATE_UNKNOWN_NAME = 4,   // uses a filter, test, function or method we lack
    SHARDLINE_TEMPLATE_BAD_INPUTS = 5,     // the inputs are not a JSON object
    SHARDLINE_TEMPLATE_TOO_EXPENSIVE = 6,  // more steps or output than we allow
    SHARDLINE_TEMPLATE_BROKEN = 7          // our own fault
} shardline_template_status;

typedef struct shardline_template shardline_template;  // immutable, any thread may render

// UTF-8 text made by a call: the result, or the message when the call failed. Always free it.
typedef struct shardline_text {
    char* data;
    size_t size;
} shardline_text;

// On success *out is a template to free, otherwise null. `constants` is a JSON object of variables
// that every rendering sees, such as bos_token.
shardline_template_status shardline_template_parse(const char* source, size_t source_size,
                                                   const char* constants, size_t constants_size,
                                                   shardline_template** out, shardline_text* text);

// `inputs` is a JSON object; its members come before the constants.
shardline_template_status shardline_template_render(const shardline_template* chat_template,
                                                    const char* inputs, size_t inputs_size,
                                                    shardline_text* text);

void shardline_template_free(shardline_template* chat_template);
void shardline_text_free(shardline_text text);

#ifdef __cplusplus
}
#endif

#endif
