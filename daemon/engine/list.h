/* SPDX-License-Identifier: Apache-2.0 */
/* Intrusive doubly linked lists: a head links to itself while it is empty, a link that is in no
 * list links to itself too, so that taking it out twice is harmless. Owned by one thread. */
#ifndef DAEMON_ENGINE_LIST_H
#define DAEMON_ENGINE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct occl_eng_link {
    struct occl_eng_link *next;
    struct occl_eng_link *prev;
};

static inline void occl_eng_list_init(struct occl_eng_link *link) {
    link->next = link->prev = link;
}
static inline bool occl_eng_list_empty(const struct occl_eng_link *head) {
    return head->next == head;
}
static inline void occl_eng_list_append(struct occl_eng_link *head, struct occl_eng_link *link) {
    link->prev = head->prev;
    link->next = head;
    head->prev->next = link;
    head->prev = link;
}
static inline void occl_eng_list_take(struct occl_eng_link *link) {
    link->prev->next = link->next;
    link->next->prev = link->prev;
    link->next = link->prev = link;
}

#define OCCL_ENG_ENTRY(link_, type_, member_) \
    ((type_ *)(void *)((char *)(link_)-offsetof(type_, member_)))

#endif
