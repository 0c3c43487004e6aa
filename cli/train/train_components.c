/* SPDX-License-Identifier: Apache-2.0 */
/* millrace components: the reference of layers, losses, optimizers, schedules, metrics and
 * callbacks, generated from their descriptors. */
#include <string.h>

#include <millrace/pipeline/memory/alloc.h>
#include <millrace/pipeline/params/guess.h>
#include <millrace/trainer/component.h>
#include "../cli.h"
#include "../reference_text.h"

static int components(int argc, char **argv);

const cli_command cli_components = {
    .name = "components",
    .summary = "lists the layers, losses, optimizers, metrics and callbacks of train",
    .usage = "[NAME...] [--names | --json | --markdown]\n--page",
    .details = "Includes learning rate schedules. A name may stand for several: mse is a loss and "
               "a metric.",
    .run = components,
};

static const struct group {
    const char *one, *title;
} groups[] = {[MR_LAYERS] = {"layer", "Layers"},
              [MR_LOSSES] = {"loss", "Losses"},
              [MR_OPTIMIZERS] = {"optimizer", "Optimizers"},
              [MR_SCHEDULES] = {"schedule", "Learning rate schedules"},
              [MR_METRICS] = {"metric", "Metrics"},
              [MR_CALLBACKS] = {"callback", "Callbacks"}};

typedef void (*printer)(mr_component_group g, const mr_component *c);

static void print_call(const mr_component *c)
{
    printf("%s(", c->name);
    cli_print_parameters(c->params, true);
    putchar(')');
}

static void print_name(mr_component_group g, const mr_component *c)
{
    (void)g;
    puts(c->name);
}

static void print_text(mr_component_group g, const mr_component *c)
{
    print_call(c);
    printf("\n  %s\n", c->doc);
    cli_describe_parameters(c->params, false);
    printf("    is a %s%s%s\n    example: %s\n\n", groups[g].one, c->alias ? ", also called " : "",
           c->alias ? c->alias : "", c->example);
}

static void print_markdown(mr_component_group g, const mr_component *c)
{
    (void)g;
    fputs("### `", stdout);
    print_call(c);
    printf("`\n\n%s", c->doc);
    if (c->alias)
        printf(" Also called `%s`.", c->alias);
    puts("");
    cli_describe_parameters(c->params, true);
    printf("\nExample: `%s`\n\n", c->example);
}

static void print_json(mr_component_group g, const mr_component *c)
{
    printf("{\"%s\"", groups[g].one);
    cli_print_field("", c->name);
    cli_print_field(", \"alias\"", c->alias);
    cli_print_field(", \"doc\"", c->doc);
    cli_print_parameters_json(c->params);
    cli_print_field(", \"example\"", c->example);
    puts("}");
}

/* Prints the components called name (NULL: all) of all groups. Returns their number. */
static size_t print_all(const char *name, printer print)
{
    const mr_component *c;
    size_t n = 0;
    for (mr_component_group g = MR_LAYERS; g < MR_COMPONENT_GROUPS; g++)
        for (size_t i = 0; (c = mr_component_at(g, i)); i++) {
            bool wanted =
                !name || strcmp(c->name, name) == 0 || (c->alias && strcmp(c->alias, name) == 0);
            if (wanted && print)
                print(g, c);
            n += wanted;
        }
    return n;
}

static int no_component(const char *name)
{
    const mr_component *c;
    mr_guess g = {.word = name};
    for (mr_component_group k = MR_LAYERS; k < MR_COMPONENT_GROUPS; k++)
        for (size_t i = 0; (c = mr_component_at(k, i)); i++)
            mr_guess_try(&g, c->name);
    if (g.best)
        return cli_usage(&cli_components, "there is no component '%s'; did you mean '%s'?", name,
                         g.best);
    return cli_usage(&cli_components,
                     "there is no component '%s'; 'millrace components --names' lists them", name);
}

/* The whole of docs/components.md. */
static void print_page(void)
{
    puts("# Layers, losses, optimizers, schedules, metrics and callbacks\n\n"
         "The components of models and training, printed from the tables of descriptors by "
         "`millrace components --page`. Names and defaults are Keras's. [models.md](models.md) "
         "and [callbacks.md](callbacks.md) describe how to combine them; a component that you add "
         "has a descriptor of the same form (`trainer/component.h`).\n");
    for (mr_component_group g = MR_LAYERS; g < MR_COMPONENT_GROUPS; g++) {
        const mr_component *c;
        printf("## %s\n\n", groups[g].title);
        for (size_t i = 0; (c = mr_component_at(g, i)); i++)
            print_markdown(g, c);
    }
}

static int components(int argc, char **argv)
{
    bool page = false, json = false, markdown = false, names = false;
    const cli_flag flags[] = {
        {.name = "names", .kind = CLI_SWITCH, .value = &names, .help = "print the names only"},
        {.name = "json", .kind = CLI_SWITCH, .value = &json, .help = "print one JSON object each"},
        {.name = "markdown", .kind = CLI_SWITCH, .value = &markdown, .help = "print Markdown"},
        {.name = "page",
         .kind = CLI_SWITCH,
         .value = &page,
         .help = "print the whole page of the reference in Markdown"},
        {0}};
    const cli_flag *const tables[] = {flags, NULL};
    const char **rest = cli_words(argc);
    size_t n;
    int status = cli_parse(&cli_components, tables, argc, argv, rest, &n);
    printer print = names ? print_name : json ? print_json : markdown ? print_markdown : print_text;
    if (status < 0 && page && (n || json || markdown || names))
        status = cli_usage(&cli_components, "--page excludes names and other options");
    for (size_t i = 0; status < 0 && i < n; i++)
        if (print_all(rest[i], NULL) == 0)
            status = no_component(rest[i]);
    if (status < 0) {
        for (size_t i = 0; i < n; i++)
            print_all(rest[i], print);
        if (page)
            print_page();
        else if (n == 0)
            print_all(NULL, print);
        status = cli_flush(CLI_OK);
    }
    mr_free(rest);
    return status;
}
